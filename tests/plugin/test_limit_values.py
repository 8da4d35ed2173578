"""Limits besides speed: where their figures come from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from perfsuite import Comparison, Gemm, Reason, Settings, Verdict
from perfsuite.problems.base import Problem
from perfsuite.pytest_plugin.marker import Finding, Subject
from perfsuite.pytest_plugin.markers.alignment import Alignment
from perfsuite.pytest_plugin.markers.roofline_target import RooflineTarget

PROBLEM = Gemm(64, 8192, 8192)


def subject(timed: float | None, measure: Callable[..., Any], side_by_side: Callable[..., Any]) -> Subject:
    comparison = Comparison(
        PROBLEM.family, PROBLEM.name, PROBLEM.params, "mine", "cublas", Verdict.MET, Reason.CHECKED, "",
        clock="graph" if timed else "none", candidate_seconds=timed,
    )  # fmt: skip
    return Subject(PROBLEM, comparison, cast(Any, None), Settings(), Path(), measure, side_by_side)


def never(*_: object) -> Any:
    raise AssertionError("not to be asked")


def roofline(timed: float | None, *measured: float) -> tuple[Finding, list[str]]:
    """The finding of a limit of 0.9, by these times, where 2e-5 s are attainable; and the resources asked for."""
    asked: list[str] = []
    times = iter(measured)

    def measure(resource: str, problem: Problem) -> float:
        asked.append(resource)
        assert problem.flops is not None
        return problem.flops / 2e-5 if resource == "attainable_flops" else next(times)

    (found,) = RooflineTarget(at_least=0.9).judge(subject(timed, measure, never))
    return found, asked


def test_a_time_that_the_gate_has_taken_is_not_taken_again() -> None:
    found, asked = roofline(2e-5)
    assert found.broken is None
    assert found.measured["share"] == pytest.approx(1.0)
    assert asked == ["attainable_flops"]
    assert roofline(None, 2e-5)[1] == ["attainable_flops", "seconds"]


@pytest.mark.parametrize("timed", [None, 2.5e-5])
@pytest.mark.parametrize(("second", "broken"), [(2.1e-5, None), (2.4e-5, Reason.TOO_SLOW)])
def test_a_miss_counts_when_it_is_seen_twice(timed: float | None, second: float, broken: Reason | None) -> None:
    found, asked = roofline(timed, *([2.5e-5] if timed is None else []), second)
    assert found.broken is broken
    assert found.measured["share"] == pytest.approx(2e-5 / second)
    assert found.measured["first_seconds"] == 2.5e-5
    assert f"at least {found.measured['asked_share']:.1%} asked" in found.sentence
    assert "(25 us the first time)" in found.sentence
    assert asked == ["attainable_flops", *["seconds"] * (2 if timed is None else 1)]


def test_two_sizes_are_timed_in_turn() -> None:
    asked: list[tuple[Problem, Problem]] = []

    def side_by_side(one: Problem, other: Problem) -> tuple[float, float]:
        asked.append((one, other))
        return 1e-5, 1.3e-5

    (found,) = Alignment(dim=8193, max_drop=0.2).judge(subject(None, never, side_by_side))
    assert asked == [(PROBLEM, Gemm(64, 8192, 8193))]
    assert found.measured == pytest.approx({"seconds": 1e-5, "misaligned_seconds": 1.3e-5, "drop": 0.3}, rel=1e-3)
    assert found.broken is Reason.TOO_SLOW
