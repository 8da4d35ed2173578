"""Judges one candidate on one task, stage by stage: parse, compile, run, right, fast."""

from __future__ import annotations

import contextlib
import hashlib
import math
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from perfsuite.case.ask import Ask
from perfsuite.case.comparison import Comparison
from perfsuite.device import turns
from perfsuite.isolate import compare_isolated
from perfsuite.isolate.errors import LateError
from perfsuite.isolate.nursery import nursery
from perfsuite.judge.answer import Answer, Promise, Stage, WorkloadAnswer
from perfsuite.judge.candidates import Candidate, parse_fault
from perfsuite.judge.entry import function_of, source_of
from perfsuite.judge.promise import METHOD, METHOD_OF_ONE
from perfsuite.judge.tasks import Task, Workload
from perfsuite.outcome import Reason, Verdict
from perfsuite.settings import DeviceKind, Settings

WORST_FIRST = (Verdict.WRONG, Verdict.MISSED, Verdict.UNDECIDED, Verdict.MET)
_RUN = (Reason.CANDIDATE_FAILED, Reason.TIMED_OUT, Reason.OUT_OF_MEMORY)
_TIMED = (Reason.FASTER_THAN_THE_CARD, Reason.FAST_ENOUGH, Reason.TOO_SLOW, Reason.BUDGET_SPENT, Reason.THROTTLED)


@dataclass(frozen=True)
class Terms:
    """The terms of a judgement."""

    device: DeviceKind = "cpu"
    seconds: float = 1.0
    """Device time that the timed rounds of one workload may take."""
    at_least: float | None = None
    """The target; None for the problem's target, if it has one."""
    timed: bool = True
    """False checks the answers alone."""
    run_seconds: float = 30.0
    """The longest time of one request to the candidate: its import and first call, one call, or one sample."""
    compile_seconds: float = 120.0
    """The longest time of a compiler."""
    one_in: float = 20.0
    """At most one verdict of speed in this number is expected to be false."""
    alpha: float | None = None
    """The error that this candidate may spend, from a stream; None for one candidate by itself: 1 / one_in."""
    seed: int = 0
    other_sizes: bool = False
    """True: right answers are asked for at slightly other sizes too, drawn in secret and untimed."""
    why: bool = False
    """True: the answer names the first thing to look at."""
    sanitize: bool = False
    """True: the tools of compute-sanitizer watch the candidate, on a card alone."""
    tool_seconds: float = 120.0
    """The longest time of one such tool, and of one run that `why` needs."""
    sandboxed: bool = False
    """True: source text runs in the operating system's sandbox, or not at all."""
    deterministic: bool = True
    """False: equal inputs may give other bits."""

    def __post_init__(self) -> None:
        if not 0.0 < self.tool_seconds <= 3600.0:
            said = "it must be a number of seconds over 0 and at most 3600"
            raise ValueError(f"tool_seconds is {self.tool_seconds!r}; {said}")

    def settings(self, workloads: int) -> Settings:
        """The settings of one workload. ValueError for bad terms."""
        alpha = 1.0 / self.one_in if self.alpha is None else self.alpha
        return Settings(device=self.device, seconds=self.seconds, seed=self.seed, alpha=alpha, cases=workloads)


class NoSandboxError(RuntimeError):
    """The terms ask for a sandbox, and the candidate would run without one; the message gives the reason."""


def judge_one(candidate: Candidate, task: Task, terms: Terms, *, id: str | None = None) -> Answer:
    """The answer on a candidate. UserError for a form that is not supported; NoSandboxError."""
    begin = time.perf_counter()
    settings = terms.settings(len(task.workloads))
    target = task.at_least if terms.at_least is None else terms.at_least
    on_card = turns.working if terms.device == "cuda" else contextlib.nullcontext
    fault = parse_fault(candidate, function_of(candidate, task))
    seconds = {"parse": time.perf_counter() - begin}
    made = Answer(
        id=id or job_id(candidate, task.name),
        candidate=candidate.name,
        problem=task.name,
        device=terms.device,
        card=_card(terms.device),
        verdict=Verdict.WRONG,
        reason=str(Reason.DOES_NOT_PARSE),
        sentence="",
        stage=Stage.PARSE,
        target=target,
    )
    if fault is not None:
        return replace(made, sentence=fault, seconds={**seconds, "whole": time.perf_counter() - begin})
    if terms.sandboxed and not (there := nursery(sandboxed=True, device=terms.device)).boxed:
        raise NoSandboxError(there.sandbox)
    found: list[WorkloadAnswer] = []
    with tempfile.TemporaryDirectory(prefix="perfsuite-judge-") as folder:
        if candidate.form != "python":
            from perfsuite.judge.compiled import compile_candidate

            compiled = compile_candidate(candidate, task, terms.device, terms.compile_seconds)
            seconds["compile"] = compiled.seconds
            made = replace(
                made,
                stage=Stage.PARSE if compiled.reason is Reason.DOES_NOT_PARSE else Stage.COMPILE,
                compiled=compiled.place, kernels=compiled.kernels,
                compiler_output=compiled.output or None,
            )  # fmt: skip
            if compiled.library is None:
                return replace(
                    made, verdict=compiled.verdict, reason=str(compiled.reason), sentence=compiled.sentence,
                    seconds={**seconds, "whole": time.perf_counter() - begin},
                )  # fmt: skip
        for workload in task.workloads:
            if candidate.form == "python":
                source = source_of(candidate, task, workload, terms.device, Path(folder))
            else:
                source = compiled.source(workload, Path(folder))
            with on_card():
                judged = _judged(source, workload, target, terms, settings)
                if terms.why:  # which measures too
                    turns.alone()
                found.append(_looked_into(judged, source, workload, terms, made))
            if found[-1].verdict is Verdict.WRONG:
                break
    return _summary(made, found, terms, settings, {**seconds, "whole": time.perf_counter() - begin})


def job_id(candidate: Candidate, problem: str) -> str:
    """The identifier of a job that was given none."""
    return hashlib.sha256(f"{candidate.digest} {problem}".encode()).hexdigest()[:16]


def _judged(source: Any, workload: Workload, target: float | None, terms: Terms, settings: Settings) -> WorkloadAnswer:
    begin = time.perf_counter()
    against = workload.against if workload.against is not None else workload.problem.default_rival
    ask = Ask(
        workload.problem,
        source,
        against=against if terms.timed else None,
        at_least=target if terms.timed else None,
        deterministic=terms.deterministic,
        other_sizes=terms.other_sizes,
        settings=settings,
    )
    one = compare_isolated(ask, terms.run_seconds)
    late = isinstance(one.error, LateError)
    reason = Reason.TIMED_OUT if late else one.reason
    return WorkloadAnswer(
        name=workload.name,
        weight=workload.weight,
        verdict=one.verdict,
        reason=str(reason),
        sentence=f"the candidate {one.error}" if late else one.sentence,
        stage=_stage(one, reason),
        rival=one.rival,
        speed=one.speed,
        speed_low=one.speed_low,
        speed_high=one.speed_high if one.speed_high is not None and math.isfinite(one.speed_high) else None,
        confidence=one.confidence,
        candidate_seconds=one.candidate_seconds,
        rival_seconds=one.rival_seconds,
        candidate_error=one.candidate_error,
        rival_error=one.rival_error,
        error_limit=one.error_limit,
        roofline_share=_roofline(one, workload, settings),
        isolation=one.clock_note,
        seconds={
            **({} if one.candidate_first_seconds is None else {"run": one.candidate_first_seconds}),
            "right": one.check_seconds,
            "fast": one.gpu_seconds,
            "whole": time.perf_counter() - begin,
        },
        warnings=one.warnings,
        frames=one.frames,
    )


def _looked_into(answer: WorkloadAnswer, source: Any, workload: Workload, terms: Terms, made: Answer) -> WorkloadAnswer:
    """The answer with what the tools say that were asked for, in runs of the candidate alone."""
    if answer.stage not in (Stage.RUN, Stage.RIGHT, Stage.FAST):
        return answer
    limits: dict[str, Any] = {"device": terms.device, "seconds": terms.tool_seconds}
    if terms.sanitize:
        import torch

        from perfsuite.isolate.compare import NamedRival
        from perfsuite.judge.sanitize import with_sanitizer

        against = workload.problem.default_rival if workload.against is None else workload.against
        rival = NamedRival(workload.problem, against) if isinstance(against, str) else against
        inputs = workload.problem.inputs(torch.Generator(device=terms.device).manual_seed(terms.seed))
        answer = with_sanitizer(answer, source, inputs, rival, **limits)
    if terms.why:
        from perfsuite.judge.why import first_look

        answer = replace(answer, why=first_look(answer, workload.problem, source, made.kernels, **limits))
    return answer


def _stage(one: Comparison, reason: Reason) -> Stage:
    if reason in (Reason.DOES_NOT_PARSE, Reason.DOES_NOT_COMPILE):
        return Stage(str(reason).removeprefix("does-not-"))
    if reason in _RUN and one.speed is None:
        return Stage.RUN
    return Stage.FAST if one.speed is not None or reason in _TIMED else Stage.RIGHT


def _card(device: DeviceKind) -> str | None:
    """The name of the card in use; None on processors."""
    if device != "cuda":
        return None
    import torch

    # The first question makes a context there. Later ones wait for nobody who times.
    with contextlib.nullcontext() if torch.cuda.is_initialized() else turns.working():
        return str(torch.cuda.get_device_name())


def _roofline(one: Comparison, workload: Workload, settings: Settings) -> float | None:
    """The least time that the card's data sheet allows, over the candidate's time."""
    if settings.device != "cuda" or one.candidate_seconds is None:
        return None
    import torch

    from perfsuite.verdict.floor import ceilings_of, floor_of

    floor = floor_of(
        ceilings_of(torch.cuda.current_device()),
        flops=workload.problem.flops,
        bytes_moved=workload.problem.bytes,
        dtype=str(workload.problem.params.get("dtype") or ""),
        cold=True,
    )
    return None if floor is None else floor.seconds / one.candidate_seconds


def _summary(
    made: Answer, found: Sequence[WorkloadAnswer], terms: Terms, settings: Settings, seconds: dict[str, float]
) -> Answer:
    worst = min(found, key=lambda one: (WORST_FIRST.index(one.verdict), one.speed or math.inf))
    stages = {name: sum(one.seconds.get(name, 0.0) for one in found) for name in ("run", "right", "fast")}
    timed = [one for one in found if one.speed is not None]
    many = len(made.workloads or found)
    slowest = min(timed, key=lambda one: one.speed or math.inf, default=None)
    named = f"{worst.name}: {worst.sentence}" if many > 1 else worst.sentence
    method = METHOD_OF_ONE if terms.alpha is None else METHOD
    return replace(
        made,
        verdict=worst.verdict,
        reason=worst.reason,
        sentence=named,
        stage=worst.stage,
        speed=_mean(found, [one.speed for one in found]),
        speed_low=_mean(found, [one.speed_low for one in found]),
        speed_high=_mean(found, [one.speed_high for one in found]),
        slowest=None if slowest is None else slowest.name,
        compiled=made.compiled or ("in the run" if any("run" in one.seconds for one in found) else None),
        seconds={**seconds, **{name: value for name, value in stages.items() if value}},
        why=worst.why,
        promise=Promise(one_in=terms.one_in, alpha=settings.alpha, method=method) if timed else None,
        workloads=tuple(found),
    )


def _mean(found: Sequence[WorkloadAnswer], values: Sequence[float | None]) -> float | None:
    """The weighted geometric mean; None if a value is missing."""
    total, whole = 0.0, sum(one.weight for one in found)
    for one, value in zip(found, values, strict=True):
        if value is None or value <= 0:
            return None
        total += one.weight * math.log(value)
    return math.exp(total / whole)
