"""Measures one case of `perfsuite bench`: a candidate beside a rival on one problem."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from perfsuite.analyze.resources import peak_bytes
from perfsuite.case.run import compare
from perfsuite.problems.base import Problem
from perfsuite.record.case import Case, case_record
from perfsuite.record.fingerprint import fingerprint
from perfsuite.settings import Settings

LEAST_SECONDS, MOST_SECONDS = 0.05, 600.0
Function = Callable[..., Any]


@dataclass(frozen=True)
class Plan:
    """One case to measure."""

    problem: Problem
    candidate: Function
    against: str | Function
    """The name of a library that the problem knows, or a function."""
    warmup: int
    """Calls of each side before the measurement."""
    iterations: int | None
    """Measure for the time of this number of calls of each side; None: for the time in the settings."""
    at_least: float | None


def measure(plan: Plan, settings: Settings) -> Case:
    """Check and time the case: one line of the record."""
    plan = replace(plan, candidate=plan.problem.called(plan.candidate))
    called, rivals = plan.problem.called, plan.problem.rival
    rival = rivals(plan.against) if isinstance(plan.against, str) else called(plan.against)
    try:
        a_round = warm_up(plan.problem, (plan.candidate, rival), settings, plan.warmup)
    except Exception as error:  # from the user's function or the library: compare() turns it into a verdict
        first_line = str(error).partition("\n")[0]
        print(f"  warm-up ended with {type(error).__name__}: {first_line}", file=sys.stderr, flush=True)
        a_round = 0.0
    if plan.iterations is not None:
        settings = replace(settings, seconds=min(MOST_SECONDS, max(LEAST_SECONDS, plan.iterations * a_round)))
    comparison = compare(plan.problem, plan.candidate, against=plan.against, at_least=plan.at_least, settings=settings)
    facts = fingerprint(Path.cwd(), device=settings.device)
    measured = None
    if settings.device == "cuda" and comparison.speed:
        sides = {"peak_bytes": plan.candidate, "rival_peak_bytes": rival}
        measured = {name: float(peak_bytes(plan.problem, side)) for name, side in sides.items()}
    return case_record(comparison, test=None, fingerprint=facts, measured=measured)


def warm_up(problem: Problem, sides: Sequence[Function], settings: Settings, calls: int) -> float:
    """Call each side `calls` times, then once more; return the seconds of these last calls together."""
    import torch

    inputs = problem.inputs(settings.generator())
    wait = torch.cuda.synchronize if settings.device == "cuda" else lambda: None
    for side in sides:
        for _ in range(calls):
            inputs.call(side)
    wait()
    begun = time.perf_counter()
    for side in sides:
        inputs.call(side)
    wait()
    return time.perf_counter() - begun
