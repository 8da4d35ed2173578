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

from perfsuite.judge.answer import SCHEMA, Stage
from perfsuite.judge.candidates import candidate_of
from perfsuite.judge.engine import Terms, job_id
from perfsuite.judge.promise import Stream
from perfsuite.outcome import Reason, Verdict
from perfsuite.workers.child import Child, DiedError

MOST_DEATHS = 3
WORKER = "perfsuite.judge.worker"


@dataclass(frozen=True)
class Job:
    """One candidate for a pool; all values are JSON values."""

    id: str
    candidate: Mapping[str, Any]
    problem: Any

    @classmethod
    def of(cls, candidate: Any, problem: Any, *, id: str | None = None) -> Job:
        """The job of a candidate that `candidates.candidate_of` reads. UserError for a bad one."""
        read = candidate_of(candidate)
        return cls(id or job_id(read, json.dumps(problem, sort_keys=True, default=str)), read.as_json(), problem)


class Pool:
    """Processes that judge. Use it in a `with` statement; `answers` gives each answer as soon as it is there."""

    def __init__(self, terms: Terms, *, jobs: int = 1, cards: Sequence[str] = (), most_seconds: float = 600.0) -> None:
        """jobs: processes. cards: values of CUDA_VISIBLE_DEVICES, one process each.

        most_seconds: the longest time of one job, all stages.
        """
        if jobs < 1:
            raise ValueError(f"jobs is {jobs!r}; it must be at least 1")
        self.terms, self.stream, self._most = terms, Stream(terms.one_in), most_seconds
        places = [{"CUDA_VISIBLE_DEVICES": card} for card in cards] or [{} for _ in range(jobs)]
        self._slots = [
            Child(("-m", WORKER, *map(str, cores)), environment=place)
            for place, cores in zip(places, _cores(len(places)), strict=True)
        ]

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        for slot in self._slots:
            slot.close()

    def answers(self, jobs: Sequence[Job]) -> Iterator[dict[str, Any]]:
        """One answer a job, as JSON objects, in the order in which they are ready. Equal identifiers: one answer."""
        waiting: queue.SimpleQueue[tuple[Job, int] | None] = queue.SimpleQueue()
        ready: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        different = {job.id: job for job in jobs}
        for job in different.values():
            waiting.put((job, 0))
        threads = [
            threading.Thread(target=self._serve, args=(slot, waiting, ready), daemon=True) for slot in self._slots
        ]
        for thread in threads:
            thread.start()
        try:
            for _ in different:
                yield ready.get()
        finally:
            for _ in threads:
                waiting.put(None)

    def _serve(self, slot: Child, waiting: Any, ready: Any) -> None:
        while (taken := waiting.get()) is not None:
            job, deaths = taken
            try:
                terms = replace(self.terms, alpha=self.stream.next_alpha())
                request = json.dumps({"job": asdict(job), "terms": asdict(terms)})
                answer = json.loads(slot.ask(request.encode(), self._most))
            except DiedError as died:
                if deaths + 1 < MOST_DEATHS:
                    waiting.put((job, deaths + 1))
                    continue
                answer = undecided(job, Reason.WORKER_LOST, f"its process died {MOST_DEATHS} times: {died}", terms)
            except Exception as error:  # no job may be lost
                said = f"{type(error).__name__}: {error}"
                answer = undecided(job, Reason.SERVICE_FAILED, said, self.terms)
            if answer.get("reason") in (Reason.FAST_ENOUGH, Reason.TOO_SLOW):
                self.stream.decided()
            ready.put(answer)


def undecided(job: Job, reason: Reason, sentence: str, terms: Terms) -> dict[str, Any]:
    """The answer on a job that the service could not judge."""
    from perfsuite.judge.answer import Answer

    problem = job.problem if isinstance(job.problem, str) else json.dumps(job.problem, default=str)
    return Answer(
        schema=SCHEMA,
        id=job.id,
        candidate=str(job.candidate.get("name", "candidate")),
        problem=problem[:200],
        device=terms.device,
        verdict=Verdict.UNDECIDED,
        reason=str(reason),
        sentence=sentence,
        stage=Stage.PARSE,
    ).as_json()


def _cores(slots: int) -> list[list[int]]:
    """The processors of each slot: disjoint if there are enough, else all for each."""
    there = sorted(os.sched_getaffinity(0))
    if slots > len(there):
        return [[] for _ in range(slots)]
    share = len(there) // slots
    return [there[slot * share : (slot + 1) * share] for slot in range(slots)]
