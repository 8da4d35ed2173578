"""Jobs, and the sources that hand them to the processes of a pool, whether these run here or elsewhere."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from perfsuite.judge.answer import SCHEMA, Answer, Stage
from perfsuite.judge.candidates import candidate_of
from perfsuite.judge.engine import Terms, job_id
from perfsuite.outcome import Reason, Verdict

MOST_DEATHS = 3
"""Deaths of the judging process after which a job is UNDECIDED."""


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


@dataclass(frozen=True)
class Turn:
    """One try of one job, with the terms that hold for it. The source gives the key, which no other job has."""

    key: str
    job: Job
    terms: Terms


class Source(Protocol):
    """Hands out jobs and takes their answers. Each method is called from several threads at once."""

    def take(self) -> Turn | None:
        """The next turn; waits for one. None if there is none any more."""

    def answered(self, turn: Turn, answer: Mapping[str, Any]) -> None:
        """Keep the answer, unless the job has one already."""

    def died(self, turn: Turn, said: str) -> None:
        """Note that the judging process ended without an answer. The source hands the job out again, or gives it up."""


def undecided(job: Job, reason: Reason, sentence: str, terms: Terms) -> dict[str, Any]:
    """The answer on a job that the service could not judge."""
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


def lost(turn: Turn, said: str) -> dict[str, Any]:
    """The answer on a job whose process died too often. said: the end of the last one's output."""
    return undecided(turn.job, Reason.WORKER_LOST, f"its process died {MOST_DEATHS} times: {said}", turn.terms)


def decided_by_speed(answer: Mapping[str, Any]) -> bool:
    """True if the answer counts in a stream's promise: its verdict comes from an interval of the speed."""
    return answer.get("reason") in (Reason.FAST_ENOUGH, Reason.TOO_SLOW)
