"""Runs jobs on cards until their time is over, and says how far they are.

Every command runs in a session of its own. Commands that the time cuts are interrupted as by Ctrl-C, so that they write
what they have; those that do not end then are killed. A job whose commands fail stops no other job.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from subprocess import STDOUT, Popen
from typing import IO

from perfsuite.history import children

from .job import CPU, At, Job, Piece
from .kept import WHOLE, Kept, State
from .needs import lacking
from .schedule import Card, Chosen, Running, choose

ROOT = Path(__file__).resolve().parents[2]
CLOSING = 35.0
"""Seconds at the end of a call in which nothing is measured: cut commands end, and records are joined."""
CLOSING_SHARE = 0.2
"""At most this share of a short call."""
INTERRUPT_SECONDS = 12.0
"""After which a command that was interrupted is killed."""
JOIN_SECONDS = 10.0
POLL_SECONDS = 0.05
JOIN, FAILED = "join", "failed"
IN_PART = 3
"""Exit code of programs that had too little time."""
EVERY = 15.0
"""Seconds between lines that say what runs."""


@dataclass(eq=False)
class _Process:
    """A command that runs."""

    running: Running
    child: Popen[str]
    ends: ExitStack
    """Closing it kills what still runs."""
    cut: bool = False
    killed_at: float = float("inf")


@dataclass
class _Work:
    """A job of this call."""

    at: At
    state: State
    pieces: list[Piece]
    """Those that have not begun."""
    joins: bool = True
    """True until its files have been joined, or a command has been made that does it."""
    join: Piece | None = None
    """That command, until it begins."""
    joined: bool = False
    """True if the record has all files that there are."""
    touched: bool = False
    """True once a command of it has begun in this call."""
    unfinished: bool = False
    """True once a command has ended in this call without doing all of its work."""
    failed: list[str] = field(default_factory=list)


def _folder_name(job: Job) -> str:
    return re.sub(r"[^\w.-]", "-", job.name)


class Run:
    """One call."""

    def __init__(
        self,
        kept: Kept,
        card: str,
        jobs: Sequence[Job],
        cards: Sequence[Card],
        *,
        seconds: float,
        processors: int,
        sanitizer: str,
        tell: Callable[[str], None] = lambda text: print(text, flush=True),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """card: the folder of its records. seconds: of the call. processors: of each card."""
        self._now = clock
        self.kept, self.card, self.cards, self.processors, self.tell = kept, card, cards, processors, tell
        self.sanitizer = sanitizer
        self.begun = self._now()
        self.end = self.begun + seconds
        self.cut_at = self.end - min(CLOSING, CLOSING_SHARE * seconds)
        self.stopped: str | None = None
        self._closing = False
        self._processes: list[_Process] = []
        self._told = self.begun
        self.work = {job.name: work for job in jobs if (work := self._begin(job)) is not None}

    def _begin(self, job: Job) -> _Work | None:
        """What is left of a job; None if nothing is, or if it cannot be done here."""
        state = self.kept.jobs.setdefault(job.name, State())
        if state.state == WHOLE:
            return None
        if reason := self._reason(job):
            state.state = f"lacks {reason}"
            return None
        place = self.kept.folder / _folder_name(job)
        (place / "record").mkdir(parents=True, exist_ok=True)
        if self.card == CPU:
            job = replace(job, cards=1)
        at = At(job, place, self.card, len(self.cards))
        return _Work(at, state, job.kind.pieces(at, frozenset(state.ended)))

    def _reason(self, job: Job) -> str:
        if self.card == CPU:
            return "" if job.small is not None else "a card"
        if job.cards > len(self.cards):
            return f"cards: it wants {job.cards}"
        return "; ".join(lacking(job.needs, self.sanitizer))

    def run(self) -> None:
        """Do all that the time allows. The folder holds whole files, however this ends."""
        try:
            with self._signals():
                while self._step(self.cut_at):
                    time.sleep(POLL_SECONDS)
                self._cut()
                while self._step(self.end):
                    time.sleep(POLL_SECONDS)
        finally:
            for process in self._processes:
                process.ends.close()
            self._processes.clear()
            for work in self.work.values():
                self._judge(work)
            self.kept.write()

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Take Ctrl-C and SIGTERM as the end of the time."""

        def stop(number: int, frame: object) -> None:
            if self.stopped is None:
                self.stopped = signal.Signals(number).name
                self.cut_at = self._now()
                self.end = min(self.end, self.cut_at + INTERRUPT_SECONDS + JOIN_SECONDS)

        before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _step(self, end: float) -> bool:
        """Look after what runs, begin what may begin; False if nothing is left to wait for before `end`."""
        now = self._now()
        for process in list(self._processes):
            if process.child.poll() is not None:
                self._ended(process)
            elif now >= process.killed_at:
                process.ends.close()
        if now >= end:
            return False
        while chosen := choose(self._waiting(), self.cards, now, end, self.processors):
            self._start(chosen)
        if now - self._told >= EVERY and self._processes:
            self._told = now
            self._say(
                "running " + ", ".join(f"{one.running.job.name} {one.running.piece.name}" for one in self._processes)
            )
        return bool(self._processes)

    def _waiting(self) -> Iterator[tuple[Job, Piece]]:
        """Commands that may begin as far as their own job goes, in the order of the jobs."""
        for work in self.work.values():
            if self._closing:
                work.join = work.join or self._join(work)
                if work.join:
                    yield replace(work.at.job, cards=1, processors=0, least=0.0), work.join
                continue
            turn = min((piece.turn for piece in work.pieces), default=0)
            begun = [one.running.piece for one in self._processes if one.running.job is work.at.job]
            if all(piece.turn == turn for piece in begun):
                if turn and not begun:
                    self._leave_out(work)
                yield from ((work.at.job, piece) for piece in work.pieces if piece.turn == turn)

    def _leave_out(self, work: _Work) -> None:
        """Count what is not needed as done."""
        spare = [piece for piece in work.pieces if not piece.needed()]
        work.pieces = [piece for piece in work.pieces if piece not in spare]
        work.state.ended += [piece.name for piece in spare]

    def _join(self, work: _Work) -> Piece | None:
        """The command that joins the files of a job; None if it is done or there is nothing to join."""
        busy = any(one.running.job.name == work.at.job.name for one in self._processes)
        if busy or not work.joins or (work.pieces and not work.touched):
            return None
        work.joins = False
        try:
            words = work.at.job.kind.join(work.at)
        except Exception as error:  # a broken file of one job stops no other
            work.failed.append(f"join: {type(error).__name__}: {error}"[:200])
            return None
        work.joined = words is None
        return None if words is None else Piece(name=JOIN, words=words, seconds=JOIN_SECONDS)

    def _start(self, chosen: Chosen) -> None:
        now = self._now()
        job, piece, cards = chosen
        work = self.work[job.name]
        if piece is work.join:
            work.join = None
        else:
            work.pieces.remove(piece)
        work.touched = True
        given = {"{seconds}": f"{max(1.0, self.cut_at - now - job.closing):.0f}", "{sanitizer}": self.sanitizer}
        words = [given.get(word, word) for word in piece.words]
        with ExitStack() as stack:
            log = stack.enter_context(self._log(work, piece))
            print("$ python", *words, file=log, flush=True)
            line = children.started(
                [sys.executable, *words],
                cwd=ROOT,
                environment=self._environment(work, piece, cards),
                stdout=log,
                stderr=STDOUT,
            )
            child = stack.enter_context(line)
            running = Running(work.at.job, piece, cards, now, now + piece.seconds)
            self._processes.append(_Process(running, child, stack.pop_all()))
        for card in cards:
            card.running.append(running)
        where = ",".join(card.selector or CPU for card in cards)
        self._say(f"{job.name} {piece.name} begins on {where}, about {piece.seconds:.0f} s")

    def _log(self, work: _Work, piece: Piece) -> IO[str]:
        folder = self.kept.folder / "logs"
        folder.mkdir(exist_ok=True)
        return (folder / f"{_folder_name(work.at.job)}-{piece.name}.log").open("a", encoding="utf-8")

    def _environment(self, work: _Work, piece: Piece, cards: Sequence[Card]) -> Mapping[str, str]:
        path = [str(ROOT), str(ROOT / "ext"), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path), "PYTHONUNBUFFERED": "1"}
        selectors = [card.selector for card in cards if card.selector is not None]
        if selectors:  # a number is NVML's, which CUDA's is only in this order
            environment |= {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": ",".join(selectors)}
        if work.at.job.threads is not None:
            environment["OMP_NUM_THREADS"] = str(work.at.job.threads)
        if work.at.job.own_folder:
            own = work.at.place / f"tmp-{piece.name}"
            own.mkdir(exist_ok=True)
            environment["TMPDIR"] = str(own)
        return environment | dict(piece.environment)

    def _ended(self, process: _Process) -> None:
        """Note how a command ended."""
        running, code = process.running, process.child.returncode
        job, piece = running.job, running.piece
        work = self.work[job.name]
        process.ends.close()
        self._processes.remove(process)
        for card in running.cards:
            card.running.remove(running)
        spent = self._now() - running.begun
        work.state.seconds = round(work.state.seconds + spent, 1)
        if job.own_folder:
            shutil.rmtree(work.at.place / f"tmp-{piece.name}", ignore_errors=True)
        how = _how(process, code)
        if piece.name == JOIN:
            work.joined = how == WHOLE
        elif how == WHOLE:
            work.state.ended.append(piece.name)
        work.unfinished |= how != WHOLE
        if how == FAILED:
            work.failed.append(f"{piece.name}: exit code {code}")
        self._say(f"{job.name} {piece.name}: {how}, exit code {code}, {spent:.0f} s")
        self.kept.write()

    def _cut(self) -> None:
        """Interrupt what runs. From now on files are joined, and nothing else begins."""
        self._closing = True
        for process in self._processes:
            process.cut, process.killed_at = True, min(self._now() + INTERRUPT_SECONDS, self.end)
            for card in process.running.cards:
                card.running.remove(process.running)  # joining does not wait for its end
            process.running.cards = ()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.child.pid, signal.SIGINT)
            self._say(f"{process.running.job.name} {process.running.piece.name} is cut: {self.stopped or 'no time'}")

    def _judge(self, work: _Work) -> None:
        """Read the record of a job, and put it among the whole ones if it is."""
        at, state = work.at, work.state
        self._join(work)  # what needs no command is done even without time
        begun = work.touched or any(one.is_file() for one in at.place.rglob("*"))
        state.state = "partial" if begun else "not begun"
        try:
            if at.record.exists():
                whole, state.found = at.job.kind.found(at)
                state.record = str(at.record.relative_to(self.kept.folder))
                if whole and work.joined and not work.pieces and not work.unfinished:
                    state.state, state.record = WHOLE, self._placed(at)
        except Exception as error:  # a broken file of one job stops no other
            work.failed.append(f"{at.record.name}: {type(error).__name__}: {error}"[:200])
        if work.failed and state.state != WHOLE:
            state.state = FAILED
            state.found = "; ".join([*work.failed, *filter(None, [state.found])])

    def _placed(self, at: At) -> str:
        """Copy a whole record to where --take finds it."""
        name = f"{_folder_name(at.job)}.json" if at.job.sections else at.job.record
        place = self.kept.folder / self.card / name
        place.parent.mkdir(parents=True, exist_ok=True)
        if at.record.is_dir():
            shutil.copytree(at.record, place, dirs_exist_ok=True)
        else:
            shutil.copyfile(at.record, place)
        return str(place.relative_to(self.kept.folder))

    def _say(self, text: str) -> None:
        now = self._now()
        self.tell(f"[{now - self.begun:.0f} s, {max(0.0, self.end - now):.0f} left] {text}")


def _how(process: _Process, code: int) -> str:
    """How a command ended: whole, in part, cut or failed."""
    piece = process.running.piece
    if process.cut:
        return "cut"
    if code not in piece.codes:
        return "in part" if code == IN_PART else FAILED
    with contextlib.suppress(Exception):  # a file that cannot be read is not whole
        if piece.whole():
            return WHOLE
    return "in part"
