"""Compares a record with written goals: a row for each goal, with its geometric mean, its lowest value, met or missed.

Goals are tables [[goal]] of a TOML file beside the record. Their keys are the fields of `Goal`.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from perfsuite.outcome import UserError
from perfsuite.record.case import Case
from perfsuite.record.store import read_record
from perfsuite.report import figures
from perfsuite.report.rebuilt import problem_of


def _tflops(case: Case) -> float | None:
    problem = problem_of(case)
    if case.aspect or problem is None or not problem.flops or not case.candidate_seconds:
        return None
    return problem.flops / case.candidate_seconds / 1e12


MEASURES: dict[str, Callable[[Case], float | None]] = {
    "speed": lambda case: None if case.aspect else case.speed,
    "tflops": _tflops,
    "share": lambda case: figures.speed(case) if case.aspect == "roofline" else None,
}


@dataclass(frozen=True)
class Goal:
    """One row: the cases that it is about, and what they must reach."""

    what: str
    """The words of the row."""
    fit: Mapping[str, str | Sequence[str]]
    """Patterns over fields and parameters of a case; of a list, one must fit."""
    rivals: Sequence[str] = ()
    """The rivals that count; of several, the one that is fastest on a problem. Empty: any."""
    every: bool = False
    """Only problems count on which each of `rivals` was measured."""
    measure: str = "speed"
    """A key of MEASURES."""
    mean: float | None = None
    """The geometric mean must reach this."""
    lowest: float | None = None
    """Every case must reach this."""

    def values(self, cases: Sequence[Case]) -> list[float]:
        """One value a problem: of several rivals, that of the fastest."""
        found: dict[tuple[str, str, str], float] = {}
        seen: dict[tuple[str, str, str], set[str | None]] = {}
        for case in cases:
            fields = {**case.line, **case.params}
            if not all(_fits(str(fields.get(name)), patterns) for name, patterns in self.fit.items()):
                continue
            if self.rivals and case.rival not in self.rivals:
                continue
            value = MEASURES[self.measure](case)
            if value is not None:
                # Functions that a test defines have one name for all of its sizes.
                key = case.candidate, case.name, str(case.line.get("test")) if case.family == "custom" else ""
                found[key] = min(value, found.get(key, math.inf))
                seen.setdefault(key, set()).add(case.rival)
        return [value for key, value in found.items() if not self.every or seen[key] >= set(self.rivals)]


@dataclass(frozen=True)
class Result:
    """A goal beside what was measured."""

    goal: Goal
    values: Sequence[float] = field(repr=False)

    @property
    def mean(self) -> float | None:
        """The geometric mean; None without a case."""
        return math.exp(sum(map(math.log, self.values)) / len(self.values)) if self.values else None

    @property
    def word(self) -> str:
        """ "met", "MISSED", or "not measured"."""
        if self.mean is None:
            return "not measured"
        short = self.goal.mean is not None and self.mean < self.goal.mean
        short |= self.goal.lowest is not None and min(self.values) < self.goal.lowest
        return "MISSED" if short else "met"


def read_goals(path: Path) -> list[Goal]:
    """The goals of a TOML file; UserError names the entry that is no goal."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UserError(f"{path}: {error}") from None
    goals = []
    for number, entry in enumerate(document.get("goal", []), start=1):
        where = f"{path}: goal {number}"
        known = set(Goal.__dataclass_fields__)
        if not isinstance(entry, dict) or not {"what", "fit"} <= set(entry) <= known:
            raise UserError(
                f"{where} must have what and fit, and may have {', '.join(sorted(known - {'what', 'fit'}))}"
            )
        goal = Goal(**entry)
        if goal.measure not in MEASURES:
            raise UserError(f"{where}: measure is {goal.measure!r}; it must be one of {', '.join(MEASURES)}")
        if goal.mean is None and goal.lowest is None:
            raise UserError(f"{where} asks for nothing: give mean, lowest or both")
        goals.append(goal)
    if not goals:
        raise UserError(f"{path} has no table [[goal]]")
    return goals


def goals_table(path: Path, filters: Mapping[str, str]) -> str:
    """A row for each goal of the file goals=NAME, which lies beside the record. No record yet: none is measured."""
    goals = read_goals(path.parent / filters.get("goals", "goals.toml"))
    cases = read_record(path) if path.exists() else []
    lines = ["| goal | cases | asked | geometric mean | lowest | |", "|---|---|---|---|---|---|"]
    for goal in goals:
        one = Result(goal, goal.values(cases))
        asked = [f"mean {goal.mean:g}"] if goal.mean is not None else []
        asked += [f"lowest {goal.lowest:g}"] if goal.lowest is not None else []
        lowest = min(one.values, default=None)
        cells = goal.what, str(len(one.values)), ", ".join(asked), _figure(one.mean), _figure(lowest), one.word
        lines.append(f"| {' | '.join(cells)} |")
    if not path.exists():
        lines += ["", f"There is no record {path.name} yet."]
    return "\n".join(lines)


def _fits(value: str, patterns: str | Sequence[str]) -> bool:
    return any(fnmatchcase(value, one) for one in ([patterns] if isinstance(patterns, str) else patterns))


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}" if value < 10 else f"{value:.0f}"
