"""Long calls: a round is one call of each side, and the effect of their order is taken off."""

from __future__ import annotations

import math
import random

import pytest
from fake_clock import FakeClock

from perfsuite.clock.rounds import SIDES, Round
from perfsuite.outcome import Verdict
from perfsuite.settings import Settings
from perfsuite.verdict.noise import Noise
from perfsuite.verdict.timing import Timed, Timing

SEEDS = 60


def timed(call: float, speed: float, order: float, seed: int, *, cases: int = 100) -> tuple[Timed, float]:
    """A case of calls of that length and its device time. order: by how much the first call of a round is faster."""
    draw = random.Random(seed)
    turns = iter(range(10_000))
    setups: dict[int, float] = {}

    def script(setup: int, count: int) -> list[Round]:
        bias = setups.setdefault(setup, draw.gauss(0.0, 0.003))
        rounds = []
        for _ in range(count):
            first = SIDES[next(turns) % 2]
            ours, theirs = (call * math.exp(draw.gauss(0.0, 0.01)) * (1.0 - order * (first == side)) for side in SIDES)
            rounds.append(Round(ours, theirs * speed * math.exp(bias), first))
        return rounds

    clock = FakeClock(script)
    clock.halves, clock.setups = 1, 1
    found = Timing(clock, 1.0, Settings(cases=cases), lambda _: Noise(0.003, 0.001, "test")).run()
    return found, clock.seconds_spent


@pytest.mark.parametrize("order", [0.0, 0.08])
@pytest.mark.parametrize(("call", "most"), [(4e-3, 1.0), (15e-3, 1.0), (30e-3, 2.0)])
def test_a_truth_5_percent_from_the_target_is_decided_in_time(call: float, most: float, order: float) -> None:
    for seed in range(SEEDS):
        for speed, verdict in ((1.05, Verdict.MET), (0.95, Verdict.MISSED)):
            found, seconds = timed(call, speed, order, seed)
            assert found.verdict is verdict, (seed, speed)
            assert seconds <= most


@pytest.mark.parametrize("order", [0.0, 0.08])
def test_at_the_target_itself_a_verdict_is_no_more_frequent_than_the_error_allowed(order: float) -> None:
    verdicts = [timed(10e-3, 1.0, order, seed, cases=1)[0].verdict for seed in range(5 * SEEDS)]
    assert sum(one is not None for one in verdicts) <= 2 * 0.05 * len(verdicts)
