"""The answer to one judged candidate: one JSON object of a published, versioned form."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from perfsuite.outcome import Verdict
from perfsuite.record.json_schema import DRAFT, schema_of
from perfsuite.record.schema import Count, NonNegative, Positive, plain

SCHEMA = 1
"""Increased when a field changes its meaning or goes away. New fields may come without a new number."""
MOST_OUTPUT = 4000
"""Characters of a compiler's output that an answer keeps: its beginning and its end."""


class Stage(StrEnum):
    """The stages of a judgement, in order. The answer names the last one that the candidate entered."""

    PARSE = "parse"
    COMPILE = "compile"
    RUN = "run"
    RIGHT = "right"
    FAST = "fast"


@dataclass(frozen=True, kw_only=True)
class Promise:
    """The bound on false verdicts: of all verdicts of speed, at most one in `one_in` is expected to be false."""

    one_in: Positive
    """N: at most one verdict of speed in N is expected to be false."""
    alpha: Positive
    """The probability of a false verdict that this candidate was allowed."""
    method: str
    """The method that keeps the promise, with its source."""


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """One compiled kernel for one architecture, as ptxas reports it."""

    name: str
    """The kernel's name in the source."""
    arch: str
    """The architecture, such as sm_90a."""
    registers: Count
    """Registers a thread."""
    spill_bytes: Count
    """Bytes a thread that spill to local memory, stores and loads together."""


@dataclass(frozen=True, kw_only=True)
class Sanitized:
    """One tool of compute-sanitizer on the candidate alone."""

    tool: str
    """memcheck, racecheck, synccheck or initcheck."""
    finding: str | None = None
    """Its first finding, in a few lines; null if it found nothing."""
    rival: bool = False
    """True if the tool finds an error in the rival too; then the finding decides nothing."""
    trouble: str | None = None
    """A sentence why the tool says nothing, such as its time limit."""
    seconds: NonNegative
    """Host seconds that it took."""


@dataclass(frozen=True, kw_only=True)
class WorkloadAnswer:
    """The verdict on one workload. Seconds are seconds a call."""

    name: str
    """The workload's name: the sizes and the dtype of a family, else the name that the problem gives."""
    weight: Positive = 1.0
    """The workload's share in the mean speed, relative to the others."""
    verdict: Verdict
    """MET, MISSED, WRONG or UNDECIDED."""
    reason: str
    """The reason's code."""
    sentence: str
    """One sentence with the numbers."""
    stage: Stage
    """The last stage that the candidate entered."""
    rival: str | None = None
    """The rival's name."""
    speed: Positive | None = None
    """Rival seconds over candidate seconds; null if nothing was timed."""
    speed_low: NonNegative | None = None
    """Lower end of the interval. A reward should use this end."""
    speed_high: NonNegative | None = None
    """Upper end of the interval; null if the rounds are too few for an upper end."""
    confidence: float | None = None
    """Probability that the interval holds."""
    candidate_seconds: Positive | None = None
    """Median time of the candidate."""
    rival_seconds: Positive | None = None
    """Median time of the rival."""
    candidate_error: NonNegative | None = None
    """The candidate's relative error against float64."""
    rival_error: NonNegative | None = None
    """The rival's relative error on the same inputs."""
    error_limit: NonNegative | None = None
    """The largest error allowed."""
    roofline_share: NonNegative | None = None
    """The card's least time for the stated work over the candidate's time; null on processors or without costs."""
    isolation: str | None = None
    """The process and the sandbox in which the candidate ran."""
    seconds: Mapping[str, NonNegative] = field(default_factory=dict)
    """Host seconds spent: `run` on the first call, `right` on checks, `fast` on timing, `whole` on all of it."""
    warnings: tuple[str, ...] = ()
    """Sentences about things that a reader should know."""
    frames: tuple[str, ...] = ()
    """The last frames of a candidate that raised, as "file:line in function"."""
    sanitizer: tuple[Sanitized, ...] = ()
    """One result a tool of compute-sanitizer, if it was asked for."""
    why: str | None = None
    """The first thing to look at, if it was asked for."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The answer on one candidate: the worst verdict of its workloads, their mean speed, and each of them."""

    schema: int = SCHEMA
    """The version of this form."""
    id: str
    """The job's identifier: the one that was given, else a hash of candidate and problem."""
    candidate: str
    """The candidate's name."""
    problem: str
    """The problem's name."""
    device: str
    """The device: "cuda" or "cpu"."""
    card: str | None = None
    """The card's name; the model that was asked for, if no worker judged the job; null on processors."""
    verdict: Verdict
    """The worst verdict of the workloads, in the order WRONG, MISSED, UNDECIDED, MET."""
    reason: str
    """The reason's code, from the workload with the worst verdict."""
    sentence: str
    """One sentence with the numbers, from the same workload."""
    stage: Stage
    """The last stage that the candidate entered."""
    target: Positive | None = None
    """The lowest speed that meets the target; null without a target."""
    speed: Positive | None = None
    """The weighted geometric mean of the workloads' speeds; null if one of them was not timed."""
    speed_low: NonNegative | None = None
    """The same mean of the lower ends. A reward should use this end."""
    speed_high: NonNegative | None = None
    """The same mean of the upper ends."""
    slowest: str | None = None
    """The name of the workload with the least speed."""
    compiled: str | None = None
    """The place of compilation: "ahead" on a processor, "cached" from an earlier job, "in the run", or null."""
    compiler_output: str | None = None
    """The compiler's output, shortened in its middle."""
    kernels: tuple[Kernel, ...] = ()
    """Registers and spills of each compiled kernel."""
    seconds: Mapping[str, NonNegative] = field(default_factory=dict)
    """Host seconds of each stage, over all workloads, and of the whole."""
    promise: Promise | None = None
    """The bound on false verdicts; null if nothing was timed."""
    why: str | None = None
    """The first thing to look at, if it was asked for: of the workload with the worst verdict, then the least speed."""
    workloads: tuple[WorkloadAnswer, ...] = ()
    """One answer a workload; empty if the candidate did not get as far."""

    def as_json(self) -> dict[str, Any]:
        """The answer as one JSON object."""
        found: dict[str, Any] = plain(dataclasses.asdict(self))
        return found


def answer_schema() -> dict[str, Any]:
    """The JSON Schema of an answer. Later versions add fields, so others are allowed."""
    return {"$schema": DRAFT, **schema_of(Answer)}


def bounded(text: str) -> str:
    """The text with at most MOST_OUTPUT characters; a longer one lacks its middle."""
    if len(text) <= MOST_OUTPUT:
        return text
    half = MOST_OUTPUT // 2
    return f"{text[:half]}\n... {len(text) - 2 * half} characters left out ...\n{text[-half:]}"
