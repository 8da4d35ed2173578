"""Limits besides speed: where their figures come from."""

from __future__ import annotations

import pytest

from perfsuite import Gemm
from perfsuite.limits import ATTAINABLE, SECONDS, check
from perfsuite.markers import Alignment, RooflineTarget
from perfsuite.problems.base import Problem

PROBLEM = Gemm(64, 8192, 8192)


@pytest.mark.parametrize(("timed", "share"), [(None, 0.5), (2e-5, 1.0)])
def test_a_time_that_the_gate_has_taken_is_not_taken_again(timed: float | None, share: float) -> None:
    asked: list[str] = []

    def measure(resource: str, problem: Problem) -> float:
        asked.append(resource)
        assert problem.flops is not None
        return {ATTAINABLE: problem.flops / 2e-5, SECONDS: 4e-5}[resource]

    def never(one: Problem, other: Problem) -> tuple[float, float]:
        raise AssertionError("a roofline compares no two problems")

    (found,) = check([RooflineTarget(at_least=0.9)], PROBLEM, measure, never, seconds=timed)
    assert found.measured["share"] == pytest.approx(share)
    assert found.met == (share > 0.9)
    assert asked == ([ATTAINABLE] if timed else [ATTAINABLE, SECONDS])


def test_two_sizes_are_timed_in_turn() -> None:
    asked: list[tuple[Problem, Problem]] = []

    def measure(resource: str, problem: Problem) -> float:
        raise AssertionError("times taken apart are of two clocks")

    def side_by_side(one: Problem, other: Problem) -> tuple[float, float]:
        asked.append((one, other))
        return 1e-5, 1.3e-5

    (found,) = check([Alignment(dim=8193, max_drop=0.2)], PROBLEM, measure, side_by_side)
    assert asked == [(PROBLEM, Gemm(64, 8192, 8193))]
    assert found.measured == pytest.approx({SECONDS: 1e-5, "misaligned_seconds": 1.3e-5, "drop": 0.3}, rel=1e-3)
    assert not found.met
