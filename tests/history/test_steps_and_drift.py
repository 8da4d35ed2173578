"""The verdict against history, by simulation: quiet on noise, quick on steps, not asleep over many small ones."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import pytest

from perfsuite.history.steps_and_drift import Finding, Kind, Point, Rule, look_back, unused

NOISE = 0.002


def series(costs: Sequence[float], seed: int, noise: float = NOISE) -> list[Point]:
    draw = random.Random(seed)
    return [Point(f"c{number}", math.log(cost) + draw.gauss(0.0, noise), NOISE) for number, cost in enumerate(costs)]


def bad(findings: Sequence[Finding]) -> list[str]:
    return [finding.commit for finding in findings if finding.bad]


def test_noise_raises_no_alarm() -> None:
    alarms = [commit for seed in range(60) for commit in bad(look_back(series([1.0] * 60, seed)))]
    assert alarms == []


def test_noise_does_not_move_the_anchor() -> None:
    moved = sum(finding.kind is Kind.IMPROVED for seed in range(60) for finding in look_back(series([1.0] * 60, seed)))
    assert moved == 0


def test_a_step_is_seen_at_the_first_bad_commit_and_until_it_is_mended() -> None:
    at_once = 0
    for seed in range(30):
        found = look_back(series([1.0] * 20 + [1.03] * 5 + [1.0] * 5, seed))
        at_once += bad(found)[:1] == ["c20"]
        assert set(bad(found)) <= {f"c{number}" for number in range(20, 25)}
    assert at_once >= 28


def test_twenty_steps_of_half_a_per_cent_do_not_slip_through() -> None:
    for seed in range(30):
        costs = [1.0] * 8 + [1.005**number for number in range(1, 21)]
        found = look_back(series(costs, seed))
        first = next(index for index, finding in enumerate(found) if finding.bad)
        assert costs[first] < 1.06
        assert found[first].kind in (Kind.DRIFTED, Kind.STEP)
        assert found[-1].bad, "what nobody accepted alarms until the end"


def test_an_improvement_becomes_the_anchor_and_says_so() -> None:
    for seed in range(30):
        found = look_back(series([1.0] * 10 + [0.9] * 5 + [0.95] * 3, seed))
        moves = [finding for finding in found if finding.kind is Kind.IMPROVED]
        assert len(moves) == 1
        assert moves[0].commit in ("c11", "c12")
        assert "the anchor moves to" in moves[0].sentence
        assert bad(found)[:1] == ["c15"], "0.95 is slower than what was reached, though faster than at first"


def test_an_accepted_slow_down_is_recorded_with_its_reason_and_becomes_the_anchor() -> None:
    for seed in range(30):
        found = look_back(series([1.0] * 10 + [1.1] * 10, seed), {"c10": "needs masks of any shape"})
        assert bad(found) == []
        finding = found[10]
        assert finding.kind is Kind.ACCEPTED
        assert "needs masks of any shape" in finding.sentence
        assert found[-1].anchor == "c10"


def test_an_acceptance_that_nothing_needed_is_reported() -> None:
    points, accepted = series([1.0] * 10, 0), {"c5": "feared", "elsewhere": "not measured here"}
    assert unused(points, accepted, look_back(points, accepted)) == ["c5"]


def test_the_shares_are_the_rules() -> None:
    points = series([1.0] * 10 + [1.05], 0)
    assert bad(look_back(points))
    assert not bad(look_back(points, rule=Rule(step=0.08, drift=0.08)))


def test_few_points_are_judged_by_their_own_errors() -> None:
    assert not bad(look_back([Point("a", 0.0, 0.02), Point("b", 0.05, 0.02)]))
    assert bad(look_back([Point("a", 0.0, 0.002), Point("b", 0.05, 0.002)])) == ["b"]


def test_two_points_of_one_commit_are_refused() -> None:
    with pytest.raises(ValueError, match="two points of one commit"):
        look_back([Point("a", 0.0, 0.1), Point("a", 0.0, 0.1)])
