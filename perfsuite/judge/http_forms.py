"""The JSON forms of the service: the jobs that clients send, and the jobs that they get back."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema

from perfsuite.judge.answer import answer_schema
from perfsuite.judge.engine import Terms
from perfsuite.judge.jobs import Job
from perfsuite.judge.problem_forms import task_of
from perfsuite.judge.stored import State, Stored
from perfsuite.outcome import UserError, one_line

MOST_JOBS = 1000
"""Jobs of one batch, of one list and of one wait."""
MOST_WAIT = 60.0
"""Seconds that one request may wait."""
_NO_NAN = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
_ANSWER = {key: value for key, value in answer_schema().items() if key != "$schema"}
Id = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:@+=-]{0,199}$")]
"""An identifier that fits in an address as it is."""
Over0 = Annotated[float, Field(gt=0, lt=1e9)]


class AskedTerms(BaseModel):
    """The terms that a client may ask for. Seconds may be less than those of the service, not more."""

    model_config = _NO_NAN
    at_least: Over0 | None = Field(default=None, description="The target; null for the problem's, if it has one.")
    timed: bool = Field(default=True, description="False checks the answers alone.")
    deterministic: bool = Field(default=True, description="False: equal inputs may give other bits.")
    seed: int = Field(default=0, ge=0, lt=2**31)
    seconds: Over0 | None = Field(default=None, description="Time of a workload's timed rounds.")
    run_seconds: Over0 | None = Field(default=None, description="Limit of one request to the candidate.")
    compile_seconds: Over0 | None = Field(default=None, description="Limit of a compiler.")


class Submission(BaseModel):
    """A job: a candidate and a problem."""

    model_config = _NO_NAN
    id: Id | None = Field(default=None, description="The job's identifier; by default a hash of all the rest.")
    candidate: str | dict[str, Any] = Field(description="Python source, an object with files, or a solution.")
    problem: str | dict[str, Any] | list[Any] = Field(
        description="A family, a list of them, a definition with workloads, or a name of /v1/problems."
    )
    terms: AskedTerms = Field(default_factory=AskedTerms)


class Batch(BaseModel):
    """Jobs that are queued together: all of them, or none."""

    model_config = _NO_NAN
    jobs: list[Submission] = Field(min_length=1, max_length=MOST_JOBS)


class Wait(BaseModel):
    """Jobs to wait for."""

    model_config = _NO_NAN
    ids: list[Id] = Field(min_length=1, max_length=MOST_JOBS)
    seconds: float = Field(default=30.0, ge=0, le=MOST_WAIT, description="The longest wait for one of them to end.")


class JobForm(BaseModel):
    """A job of the client. Times are seconds since 1970."""

    id: Id
    state: State
    made: float
    began: float | None = Field(description="The last time that a process began to judge it.")
    ended: float | None
    deaths: int = Field(description="Deaths of its judging process so far.")
    answer: Annotated[dict[str, Any], WithJsonSchema(_ANSWER)] | None = Field(
        description="The answer of a job that is done, as `perfsuite judge --schema` describes it; left out of lists."
    )


class JobsForm(BaseModel):
    """Several jobs."""

    jobs: list[JobForm]


class ProblemsForm(BaseModel):
    """The names that `problem` may be."""

    problems: list[str]


class FaultForm(BaseModel):
    """The fault of a request."""

    error: str = Field(description="The fault's code.")
    message: str = Field(description="One sentence: the thing, its value and what is allowed.")


class DepthForm(BaseModel):
    """The health of the service."""

    status: str = Field(description='"ok", "stopping", or the sentence of a fault.')
    queued: int
    running: int
    workers: int
    busy: int
    restarts: int


def job_form(stored: Stored) -> dict[str, Any]:
    """A job as a JSON object."""
    return {key: value for key, value in asdict(stored).items() if key != "new"}


@dataclass(frozen=True)
class Desk:
    """Checks what clients send. It runs nothing of theirs."""

    terms: Terms
    """The terms of the service, and the most that a client may ask for."""
    folder: Path | None = None
    """The folder of trusted problems, if there is one."""
    trusted: bool = False
    """True if clients may send code that runs outside of the sandbox."""

    def job(self, given: Submission) -> tuple[Job, Terms]:
        """The job and its terms; UserError for a bad one."""
        terms = self._terms(given.terms)
        text = isinstance(given.candidate, str)  # never a path
        candidate = {"files": {"candidate.py": given.candidate}} if text else given.candidate
        problem = self._problem(given.problem)
        try:
            whole = json.dumps([candidate, problem, asdict(terms)], sort_keys=True, allow_nan=False)
        except ValueError as error:
            raise UserError(f"the job holds a number that JSON does not have: {error}") from None
        return Job.of(candidate, problem, id=given.id or hashlib.sha256(whole.encode()).hexdigest()[:32]), terms

    def problems(self) -> dict[str, Path]:
        """Name -> file of each trusted problem."""
        if self.folder is None:
            return {}
        found = sorted(path for kind in ("*.py", "*.json") for path in self.folder.rglob(kind) if path.is_file())
        return {path.relative_to(self.folder).as_posix(): path for path in found}

    def _terms(self, asked: AskedTerms) -> Terms:
        values = asked.model_dump(exclude_none=True)
        for name in ("seconds", "run_seconds", "compile_seconds"):
            if values.get(name, 0.0) > (most := getattr(self.terms, name)):
                raise UserError(f"{name} is {values[name]:g}; this service allows at most {most:g}")
        terms = replace(self.terms, **values)
        try:
            terms.settings(1)
        except ValueError as error:
            raise UserError(one_line(str(error))) from None
        return terms

    def _problem(self, given: str | dict[str, Any] | list[Any]) -> Any:
        """The problem as a process of the pool gets it."""
        if isinstance(given, str):
            return self._named(given)
        if isinstance(given, dict) and "module" in given:
            raise UserError("problem has 'module', a path; name one of /v1/problems instead")
        if isinstance(given, dict) and "definition" in given:
            return self._definition(given)
        try:
            task_of(given)
        except (TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
            raise UserError(one_line(f"the problem cannot be read: {type(error).__name__}: {error}")) from None
        return given

    def _named(self, given: str) -> str:
        known = self.problems()
        name, mark, test = given.partition("::")
        if name not in known or not test.isprintable():
            allowed = ", ".join(known) or "none, because the service was started without --problems"
            raise UserError(one_line(f"problem is {given!r}; allowed are the names of /v1/problems: {allowed}"))
        return f"{known[name].resolve()}{mark}{test}"

    def _definition(self, given: dict[str, Any]) -> dict[str, Any]:
        if not self.trusted:
            raise UserError(
                "the reference of a definition is code that runs outside of the sandbox; name one of /v1/problems, "
                "or start the service with --trust-candidates"
            )
        rows = given.get("workloads")
        if not isinstance(given["definition"], dict) or not isinstance(rows, list):
            raise UserError("definition must be an object and workloads a list; a service reads no files of a client")
        for row in rows:
            inner = row.get("workload", row) if isinstance(row, dict) else None
            inputs = inner.get("inputs", {}) if isinstance(inner, dict) else None
            if not isinstance(inputs, dict) or not all(isinstance(one, dict) for one in inputs.values()):
                raise UserError(one_line(f"a workload is {row!r}; it must have axes and inputs"))
            if any(one.get("type") == "safetensors" or "path" in one for one in inputs.values()):
                raise UserError("a workload reads a file (safetensors); put the problem in the folder of --problems")
        return given
