"""Threads and child processes that are busy while the rival is timed, and idle while the candidate is.

A thread that waits while its side is called slows the other one down: it takes the interpreter's lock, the caches or
the processor. One that works all the time, or while its side is called, is honest, unless it takes the lock in the
rival's calls alone: these wait for it then, and the candidate's do not.
"""

from __future__ import annotations

import math
import os
import resource
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

LEAST_SHARE = 0.1
"""Share by which a thread is busier in one sample of a round than in the other: of a processor, or of what the caller
had of one, where the rival never waits."""
TIMES_AS_BUSY = 2.0
"""Over all rounds, it must be that many times as busy while the rival is timed."""
CHANCE, SUSPECT = 1e-4, 0.3
"""Probability that so many of the rounds that differ are the rival's, if each were so by the toss of a coin: at most
the first of one that is accused, and the second of one that is looked at for longer."""
LEAST_WAIT = 0.25
"""Share of a sample in which this thread waits, for one in which it counts as waiting."""
TASKS = "/proc/self/task"
SIDES = ("candidate", "rival")


@dataclass
class _Use:
    """The processor time of one thread or process over all rounds."""

    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(SIDES, 0.0))
    busier: dict[str, int] = field(default_factory=lambda: dict.fromkeys(SIDES, 0))
    """Rounds in which it was busier in the sample of that side than in the other."""


@dataclass(frozen=True)
class Now:
    """The processor time that has been used so far, in seconds."""

    own: float
    """Of a processor by this thread."""
    waits: int
    """Times that this thread has waited for something: a lock, not a processor."""
    others: dict[int, float]
    """Of a processor by each thread and process that is watched."""


class Company:
    """The threads and processes that belong to the candidate, or to nobody, and when they are busy.

    A thread belongs to the side in whose call it began. Older ones are nobody's, for a library has none in Python, and
    are watched beside one. Those that only C knows, such as the pools of OpenMP, work for both sides, and are not.
    """

    def __init__(self, *, library: bool, on_host: bool = True) -> None:
        """library: the rival is called by name, so it has no threads in Python and no processes.

        on_host: False if a device computes, and its clock is read; then nothing is watched.
        """
        import torch

        self._alone = library and torch.get_num_threads() == 1
        """True if the rival never waits by itself, so that it waits for a lock if at all."""
        self._looks = on_host and sys.platform == "linux" and os.path.isdir(TASKS)
        self._library = library
        self._threads = _threads() if self._looks else frozenset[int]()
        self._new: dict[int, str] = {}
        """Threads of which it is not known whether Python runs them, and in whose calls they began."""
        self._of_python: set[int] = set()
        self._watched: set[int] = set()
        self._children: set[int] = set()
        self._processes: set[int] = set()
        self._uses: dict[int, _Use] = {}
        self._timed = dict.fromkeys(SIDES, 0.0)
        self._last: dict[str, dict[int, float]] = {}
        """Share that each used in the samples of this round so far, by side."""
        self._waits = dict.fromkeys(SIDES, 0)
        """Rounds in which this thread waited in the sample of that side and not in the other's."""
        self._waited: dict[str, bool] = {}
        """True if this thread waited in the samples of this round so far, by side."""
        if self._looks:
            self._of_python |= _native(threading.enumerate())
            self._unnamed = len(sys._current_frames()) - len(self._of_python)
            self.began("")
            if library:
                self._watched = self._of_python - {threading.get_native_id()}

    def began(self, side: str) -> None:
        """Note what has begun since the last time: in a call of that side, or of nobody (""), on this thread."""
        if not self._looks:
            return
        children = set(_children([threading.get_native_id()]))
        if side == "candidate":
            self._processes |= children - self._children
        self._children = children
        threads = _threads()
        self._new |= dict.fromkeys(threads - self._threads, side)
        self._new = {one: by for one, by in self._new.items() if one in threads}
        self._of_python &= threads
        self._threads = threads
        if not self._new:
            return
        # Python numbers the threads that it names; those that it runs besides it counts, once they have begun to run.
        unnamed = len(sys._current_frames()) - len(self._of_python) - self._unnamed
        found = set(self._new) if unnamed >= len(self._new) else self._new.keys() & _native(threading.enumerate())
        self._of_python |= found
        self._watched |= {one for one in found if self._new.pop(one) == "candidate"}

    def batch(self) -> None:
        """Note the processes that other threads have started, before a batch of rounds."""
        if self._looks:
            self._processes |= set(_children(self._threads if self._library else self._watched))

    def now(self) -> Now | None:
        """The use so far; None where nothing is watched."""
        if not self._looks:
            return None
        found = {}
        # The clocks of other threads and processes, as clock_getcpuclockid(3) numbers them.
        for numbers, kind in ((self._watched, 6), (self._processes, 2)):
            for number in numbers:
                with suppress(OSError):  # it has ended
                    found[number] = time.clock_gettime(~number << 3 | kind)
        return Now(time.thread_time(), resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw, found)

    def used(self, side: str, before: Now | None, seconds: float) -> None:
        """Count what was used in a sample of `side` that took so many seconds. before: of `now`."""
        after = self.now()
        if before is None or after is None:
            return
        own = after.own - before.own
        self._waited[side] = after.waits > before.waits and seconds - own >= LEAST_WAIT * seconds
        # A busy machine gives little of a processor to anybody. What the rival itself had says how much there was.
        available = max(own if self._alone else seconds, 1e-9)
        self._timed[side] += available
        spent = {
            number: after.others[number] - before.others[number]
            for number in before.others.keys() & after.others.keys()
        }
        for number, one in spent.items():
            self._uses.setdefault(number, _Use()).seconds[side] += one
        self._last[side] = {number: one / available for number, one in spent.items()}
        if len(self._last) < len(SIDES):
            return
        mine, rivals = (self._last.pop(one) for one in SIDES)
        waited = [self._waited.pop(one) for one in SIDES]
        if waited[0] != waited[1]:
            self._waits[SIDES[waited.index(True)]] += 1
        for number in mine.keys() & rivals.keys():
            if abs(rivals[number] - mine[number]) >= LEAST_SHARE:
                self._uses[number].busier["rival" if rivals[number] > mine[number] else "candidate"] += 1

    def suspected(self) -> bool:
        """True if more rounds should show whether one is busy in the rival's calls alone."""
        return any(CHANCE < chance <= SUSPECT for chance, *_ in self._busy()) and self.accusation() is None

    def accusation(self) -> str | None:
        """A sentence about the busiest of those that are busy in the rival's calls alone; None if there is none."""
        busiest = max((one[1:] for one in self._busy() if one[0] <= CHANCE), default=None)
        return None if busiest is None else busiest[1]

    def _busy(self) -> Iterator[tuple[float, float, str]]:
        """(probability that it is so by chance, share while the rival is timed, sentence) of each that may be so."""
        waits = self._waits["rival"]
        if self._alone and self._watched and waits > TIMES_AS_BUSY * self._waits["candidate"]:
            held = f"a thread holds the interpreter's lock while the rival is timed, in {waits} rounds"
            yield _chance(**self._waits), math.inf, f"{held}; in the candidate's calls in {self._waits['candidate']}"
        for number, use in self._uses.items():
            mine, rivals = (use.seconds[side] / max(self._timed[side], 1e-9) for side in SIDES)
            if rivals >= LEAST_SHARE and rivals > TIMES_AS_BUSY * mine:
                what = "a child process" if number in self._processes else "a thread"
                of = "of what the caller has of a processor" if self._alone else "of a processor"
                share = f"{rivals:.0%} {of} while the rival is timed, and {mine:.0%} in the candidate's calls"
                yield _chance(**use.busier), rivals, f"{what} uses {share}"


def _chance(candidate: int, rival: int) -> float:
    """Probability that of so many tosses of a coin at least `rival` are heads."""
    tosses = candidate + rival
    return sum(math.comb(tosses, heads) for heads in range(rival, tosses + 1)) / 2**tosses


def _threads() -> frozenset[int]:
    return frozenset(map(int, os.listdir(TASKS)))


def _native(threads: Iterable[threading.Thread]) -> set[int]:
    return {one.native_id for one in threads if one.native_id is not None}


def _children(threads: Iterable[int]) -> list[int]:
    """The processes that these threads have started and that are there still."""
    found: list[int] = []
    for number in threads:
        with suppress(OSError):
            handle = os.open(f"{TASKS}/{number}/children", os.O_RDONLY)
            try:
                found += map(int, os.read(handle, 1 << 16).split())
            finally:
                os.close(handle)
    return found
