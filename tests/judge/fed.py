"""A list of jobs for a pool until a time is over, and when each of them began and ended."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perfsuite.judge.engine import Terms
from perfsuite.judge.jobs import MOST_DEATHS, Job, Turn, lost


@dataclass(frozen=True)
class Ended:
    """An answer, with the seconds of this process's clock at which its job was first taken and answered."""

    job: Job
    answer: Mapping[str, Any]
    began: float
    ended: float
    deaths: int


class Fed:
    """Hands out jobs in order until they or the time are over. It is a `perfsuite.judge.jobs.Source`."""

    def __init__(
        self,
        jobs: Sequence[Job],
        terms: Terms,
        *,
        seconds: float,
        each: bool = False,
        told: Callable[[Ended], None] = lambda _: None,
        terms_of: Callable[[Job], Terms] | None = None,
    ) -> None:
        """seconds: no job begins later than this. each: every process gets every job, to fill its caches.

        told: called at each answer. terms_of: the terms of a job, where they are not those of all.
        """
        self._jobs, self._each, self._told = list(jobs), each, told
        self._terms: Callable[[Job], Terms] = terms_of or (lambda _: terms)
        self._until = time.monotonic() + seconds
        self._next: dict[int, int] = {}
        """Thread, or 0 for all -> the number of its next job."""
        self._again: list[Turn] = []
        self._began: dict[str, float] = {}
        self._deaths: dict[str, int] = {}
        self._own, self._numbers = threading.local(), itertools.count(1)
        self._lock = threading.Lock()
        self.ended: list[Ended] = []

    def take(self) -> Turn | None:
        with self._lock:
            if self._again:
                return self._again.pop()
            thread = self._thread() if self._each else 0
            number = self._next.get(thread, 0)
            if number >= len(self._jobs) or time.monotonic() > self._until:
                return None
            self._next[thread] = number + 1
            key = f"{thread}:{number}"
            self._began[key] = time.monotonic()
            return Turn(key, self._jobs[number], self._terms(self._jobs[number]))

    def _thread(self) -> int:
        """A number of this thread alone. Python gives those of threads that have ended to later ones."""
        if not hasattr(self._own, "number"):
            self._own.number = next(self._numbers)
        return int(self._own.number)

    def answered(self, turn: Turn, answer: Mapping[str, Any]) -> None:
        with self._lock:
            one = Ended(turn.job, answer, self._began[turn.key], time.monotonic(), self._deaths.get(turn.key, 0))
            self.ended.append(one)
            self._told(one)

    def died(self, turn: Turn, said: str) -> None:
        with self._lock:
            self._deaths[turn.key] = self._deaths.get(turn.key, 0) + 1
            gone = self._deaths[turn.key] >= MOST_DEATHS
            if not gone:
                self._again.append(turn)
        if gone:
            self.answered(turn, lost(turn, said))

    @property
    def taken(self) -> int:
        """The jobs that were handed out, each counted once."""
        with self._lock:
            return sum(self._next.values())

    @property
    def waiting(self) -> bool:
        """True if a job whose process died waits for another process."""
        with self._lock:
            return bool(self._again)

    def steady(self, processes: int) -> tuple[int, float]:
        """(answers, seconds) of the time in which all processes had work.

        From the answer that is the processes' first one each, on average, to the moment at which the last job was
        handed out: the start and the end of a run, with few processes at work, do not count. A run that is too short
        for that counts whole.
        """
        ends = sorted(one.ended for one in self.ended)
        if len(ends) > processes:
            begin, end = ends[processes - 1], max(one.began for one in self.ended)
            inside = sum(begin < one <= end for one in ends)
            if inside >= processes:
                return inside, end - begin
        return len(ends), self.seconds

    @property
    def seconds(self) -> float:
        """From the first job's begin to the last answer; 0 without an answer."""
        return max((one.ended for one in self.ended), default=0.0) - min((one.began for one in self.ended), default=0.0)
