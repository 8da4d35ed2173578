"""Limits besides speed: where their figures come from."""

from __future__ import annotations

import pytest

from perfsuite import Gemm
from perfsuite.limits import ATTAINABLE, SECONDS, check
from perfsuite.markers import RooflineTarget
from perfsuite.problems.base import Problem

PROBLEM = Gemm(64, 8192, 8192)


@pytest.mark.parametrize(("timed", "share"), [(None, 0.5), (2e-5, 1.0)])
def test_a_time_that_the_gate_has_taken_is_not_taken_again(timed: float | None, share: float) -> None:
    asked: list[str] = []

    def measure(resource: str, problem: Problem) -> float:
        asked.append(resource)
        assert problem.flops is not None
        return {ATTAINABLE: problem.flops / 2e-5, SECONDS: 4e-5}[resource]

    (found,) = check([RooflineTarget(at_least=0.9)], PROBLEM, measure, seconds=timed)
    assert found.measured["share"] == pytest.approx(share)
    assert found.met == (share > 0.9)
    assert asked == ([ATTAINABLE] if timed else [ATTAINABLE, SECONDS])
