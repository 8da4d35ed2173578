"""Judges many candidates at once on one machine: a pool of processes, one a card, or N on processors.

A process that dies loses no job: another process begins it again. A job whose process died MOST_DEATHS times is
UNDECIDED.
"""

from __future__ import annotations

import json
import os
import queue
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from perfsuite.judge.engine import Terms
from perfsuite.judge.jobs import MOST_DEATHS, Job, Source, Turn, decided_by_speed, lost, undecided
from perfsuite.judge.promise import Stream
from perfsuite.outcome import Reason
from perfsuite.workers.child import BESIDE, Child, DiedError

WORKER = "perfsuite.judge.worker"


@dataclass(frozen=True)
class SlotState:
    """The state of one process of a pool."""

    place: str
    """The card, as CUDA_VISIBLE_DEVICES names it, or the processors."""
    busy: bool
    starts: int
    """Starts of its process; the first one is no fault."""


class Pool:
    """Processes that judge. Use it in a `with` statement; `answers` gives each answer as soon as it is there."""

    def __init__(
        self,
        terms: Terms,
        *,
        jobs: int = 1,
        cards: Sequence[str] = (),
        beside: int = 1,
        most_seconds: float = 600.0,
        children: Sequence[Child] = (),
        stream: Stream | None = None,
    ) -> None:
        """terms: those of the jobs of `answers`. jobs: processes. cards: values of CUDA_VISIBLE_DEVICES, one each.

        beside: processes on each card, which take turns to time.
        most_seconds: the longest time of one job, all stages. children: the processes, on other machines too, instead
        of those that `jobs` and `cards` describe. stream: the promise that this pool shares with others.
        """
        if jobs < 1:
            raise ValueError(f"jobs is {jobs!r}; it must be at least 1")
        if beside < 1:
            raise ValueError(f"beside is {beside!r}; it must be at least 1")
        self.terms, self.stream, self._most = terms, stream or Stream(terms.one_in), most_seconds
        self._slots = [_Slot(child) for child in children or _local(jobs, cards, beside)]

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the processes. Their source hears of the deaths."""
        for slot in self._slots:
            slot.close()

    def answers(self, jobs: Sequence[Job]) -> Iterator[dict[str, Any]]:
        """One answer a job, as JSON objects, in the order in which they are ready. Equal identifiers: one answer."""
        different = {job.id: job for job in jobs}
        source = _Listed(list(different.values()), self.terms, self.stream)

        def work() -> None:
            self.work(source)
            source.give_up()

        threading.Thread(target=work, daemon=True).start()
        try:
            for _ in different:
                yield source.ready.get()
        finally:
            source.close()

    def work(self, source: Source) -> None:
        """Answer the jobs of a source on all processes, until it has none any more or no process has a place."""
        threads = [threading.Thread(target=self._serve, args=(slot, source), daemon=True) for slot in self._slots]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def end(self, key: str) -> bool:
        """End the process that has the turn of this key; False if none has it. Its source hears of the death."""
        return any(slot.end(key) for slot in self._slots)

    @property
    def state(self) -> tuple[SlotState, ...]:
        """The state of each process."""
        return tuple(slot.state for slot in self._slots)

    def _serve(self, slot: _Slot, source: Source) -> None:
        while slot.child.prepare() and (turn := source.take()) is not None:
            try:
                answer = slot.ask(turn, self._most)
            except DiedError as died:
                source.died(turn, str(died))
                continue
            except Exception as error:  # no job may be lost
                said = f"{type(error).__name__}: {error}"
                answer = undecided(turn.job, Reason.SERVICE_FAILED, said, turn.terms)
            source.answered(turn, answer)


class _Listed:
    """The source of a known list of jobs, in the memory of this process."""

    def __init__(self, jobs: Sequence[Job], terms: Terms, stream: Stream) -> None:
        self._terms, self._stream, self._deaths = terms, stream, dict.fromkeys((job.id for job in jobs), 0)
        self._waiting: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._closed = False
        self.ready: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        for job in jobs:
            self._waiting.put(job)

    def take(self) -> Turn | None:
        job = self._waiting.get()
        if job is None or self._closed:
            self._waiting.put(None)  # for the next thread
            return None
        return Turn(job.id, job, replace(self._terms, alpha=self._stream.next_alpha()))

    def answered(self, turn: Turn, answer: Mapping[str, Any]) -> None:
        if decided_by_speed(answer):
            self._stream.decided()
        self.ready.put(dict(answer))

    def died(self, turn: Turn, said: str) -> None:
        self._deaths[turn.key] += 1
        if self._deaths[turn.key] < MOST_DEATHS:
            self._waiting.put(turn.job)
        else:
            self.answered(turn, lost(turn, said))

    def give_up(self) -> None:
        """Answer each job that still waits: nobody takes it any more."""
        while not self._closed and not self._waiting.empty():
            if (job := self._waiting.get()) is not None:
                self.ready.put(undecided(job, Reason.WORKER_LOST, "no worker found a place", self._terms))

    def close(self) -> None:
        """Hand out no more jobs."""
        self._closed = True
        self._waiting.put(None)


class _Slot:
    """One process that judges, and the turn that it has."""

    def __init__(self, child: Child) -> None:
        self.child = child
        self._key: str | None = None
        self._lock = threading.Lock()

    @property
    def state(self) -> SlotState:
        """The state of this process."""
        return SlotState(self.child.place, self._key is not None, self.child.starts)

    def ask(self, turn: Turn, seconds: float) -> dict[str, Any]:
        """The answer to one turn; DiedError if the process ends or takes longer."""
        with self._lock:
            self._key = turn.key
        try:
            request = json.dumps({"job": asdict(turn.job), "terms": asdict(turn.terms)})
            found: dict[str, Any] = json.loads(self.child.ask(request.encode(), seconds))
            return found
        finally:
            with self._lock:
                self._key = None

    def end(self, key: str) -> bool:
        """End the process if it has the turn of this key."""
        with self._lock:
            if self._key != key or self.child.pid is None:
                return False
            self.child.end()
            return True

    def close(self) -> None:
        """End the process."""
        self.child.close()


def _local(jobs: int, cards: Sequence[str], beside: int = 1) -> Iterator[Child]:
    """The processes of this machine; of cards first one on each, then the second ones."""
    places = list(enumerate(map(tuple, _cores(len(cards) or jobs))))
    each = beside if cards else 1
    for place, cores in places * each:
        # CUDA numbers cards by speed unless told, NVML by place; the lock and the readings are those of NVML's number.
        own = {"CUDA_DEVICE_ORDER": os.environ.get("CUDA_DEVICE_ORDER", "PCI_BUS_ID")}
        environment = {"CUDA_VISIBLE_DEVICES": cards[place], **own, BESIDE: str(each)} if cards else {}
        named = cards[place] if cards else ",".join(map(str, cores)) or "all processors"
        yield Child(("-m", WORKER, *map(str, cores)), environment=environment, place=named)


def _cores(slots: int) -> list[list[int]]:
    """The processors of each slot: disjoint if there are enough, else all for each."""
    there = sorted(os.sched_getaffinity(0))
    if slots > len(there):
        return [[] for _ in range(slots)]
    share = len(there) // slots
    return [there[slot * share : (slot + 1) * share] for slot in range(slots)]
