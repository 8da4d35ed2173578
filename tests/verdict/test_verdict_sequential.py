"""The sequential test errs no more often than it says: by simulation, 10,000 trials a setting."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from perfsuite.clock.rounds import Round
from perfsuite.outcome import Verdict
from perfsuite.settings import Settings
from perfsuite.verdict.interval import normal_quantile, rank_for, rounds_needed
from perfsuite.verdict.noise import Noise
from perfsuite.verdict.policy import REGRESSION_MARGIN, SHARP_MARGIN, regression_target
from perfsuite.verdict.sequential import SequentialTest, estimate, spent_at
from perfsuite.verdict.timing import (
    FEWEST_LATER_ROUNDS,
    FIRST_ROUNDS,
    FIRST_SECONDS,
    LATER_ROUNDS,
    LATER_SECONDS,
    next_look,
)

TRIALS = 10_000
MOST_SETUPS = 12
Draw = Callable[[np.random.Generator, tuple[int, int]], np.ndarray]
SHAPES: dict[str, Draw] = {
    "normal": lambda random, size: random.normal(0.0, 1.0, size),
    "heavy tails": lambda random, size: random.standard_t(3, size) / math.sqrt(3.0),
    "skewed": lambda random, size: random.exponential(1.0, size) - math.log(2.0),
}


def simulate(
    speed: float, target: float, alpha: float, noise: Noise, within: float, shape: Draw, *, long: bool = False
) -> dict[str, float]:
    """How often a run of looks ends MET, MISSED or undecided; the arithmetic of `SequentialTest` over all trials.

    long: rounds take so long that each set-up has the fewest.
    """
    first, later = (rounds_needed(spent_at(1, alpha)), FEWEST_LATER_ROUNDS) if long else (FIRST_ROUNDS, LATER_ROUNDS)
    random = np.random.default_rng(11)
    process = random.normal(0.0, noise.process, (TRIALS, 1))
    values = np.empty((TRIALS, 0))
    met, missed = np.zeros(TRIALS, bool), np.zeros(TRIALS, bool)
    look, next_at = 0, 1
    for setups in range(1, MOST_SETUPS + 1):
        count = first if setups == 1 else later
        setup = random.normal(0.0, noise.setup, (TRIALS, 1))
        fresh = math.log(speed) + process + setup + within * shape(random, (TRIALS, count))
        values = np.concatenate([values, fresh], axis=1)
        if setups < next_at:
            continue
        look, next_at = look + 1, next_look(setups)
        low, high = bounds(values, spent_at(look, alpha), noise, setups)
        open_ = ~(met | missed)
        met |= open_ & (low >= math.log(target))
        missed |= open_ & (high < math.log(target))
    return {"MET": met.mean(), "MISSED": missed.mean(), "undecided": 1.0 - met.mean() - missed.mean()}


def bounds(values: np.ndarray, alpha: float, noise: Noise, setups: int) -> tuple[np.ndarray, np.ndarray]:
    ordered = np.sort(values, axis=1)
    rank, centre = rank_for(values.shape[1], alpha), np.median(values, axis=1)
    between = normal_quantile(alpha) * noise.of_mean(setups, 1)
    low = centre - np.hypot(centre - ordered[:, rank - 1], between)
    high = centre + np.hypot(ordered[:, values.shape[1] - rank] - centre, between)
    return low, high


def at_most(alpha: float) -> float:
    """What a rate of `alpha` may come to in TRIALS trials: four standard deviations above."""
    return alpha + 4.0 * math.sqrt(alpha / TRIALS)


def test_the_simulation_does_the_arithmetic_of_the_product() -> None:
    random = np.random.default_rng(3)
    values = random.normal(-0.01, 0.004, (1, 30))
    noise = Noise(0.002, 0.001, "test")
    rounds = [Round(math.exp(-value), 1.0, "rival", setup=place // 20) for place, value in enumerate(values[0])]
    one = estimate(rounds, 1e-4, noise)
    low, high = bounds(values, 1e-4, noise, 2)
    assert (math.log(one.low), math.log(one.high)) == pytest.approx((low[0], high[0]))
    test = SequentialTest(1.0, 1e-4, noise)
    assert test.look(rounds) is Verdict.MISSED
    assert test.last == estimate(rounds, spent_at(1, 1e-4), noise)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    ("within", "setup", "process"), [(0.004, 0.0, 0.0), (0.002, 0.001, 0.0005), (0.004, 0.002, 0.002)]
)
@pytest.mark.parametrize("alpha", [0.01, 0.05])
@pytest.mark.parametrize("long", [False, True])
def test_at_the_target_itself_each_verdict_comes_no_more_often_than_alpha(
    shape: str, within: float, setup: float, process: float, alpha: float, long: bool
) -> None:
    found = simulate(0.9, 0.9, alpha, Noise(setup, process, "test"), within, SHAPES[shape], long=long)
    assert found["MET"] <= at_most(alpha)
    assert found["MISSED"] <= at_most(alpha)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_regression_gate_tells_a_slow_down_of_one_percent_from_none(shape: str) -> None:
    """At the noise of a calibrated card, with the error of one case among ten."""
    alpha, noise = Settings().alpha / 10, Noise(0.0008, 0.0005, "test")
    same = simulate(1.0, regression_target(), alpha, noise, 0.002, SHAPES[shape])
    slower = simulate(1.0 / 1.01, regression_target(), alpha, noise, 0.002, SHAPES[shape])
    assert same["MISSED"] == 0.0
    assert same["MET"] >= 0.99
    assert slower["MET"] == 0.0
    assert slower["MISSED"] >= 0.99
    assert pytest.approx(0.005) == REGRESSION_MARGIN


@pytest.mark.parametrize("setup", [0.0005, 0.00085])
def test_the_sharp_margin_tells_half_a_percent_from_none(setup: float) -> None:
    """At the noise that a calibration saw between set-ups of calls from 20 us on, in 0.5 s of device time."""
    alpha, noise, target = Settings().alpha / 10, Noise(setup, 0.0001, "test"), regression_target(SHARP_MARGIN)
    assert FIRST_SECONDS + (MOST_SETUPS - 1) * LATER_SECONDS <= 0.5
    same = simulate(1.0, target, alpha, noise, 0.002, SHAPES["normal"])
    slower = simulate(1.0 / 1.005, target, alpha, noise, 0.002, SHAPES["normal"])
    assert same["MISSED"] == 0.0
    assert slower["MISSED"] >= 0.95


def test_the_spent_error_adds_up_to_alpha() -> None:
    total = math.fsum(spent_at(look, 0.01) for look in range(1, 10_000))
    assert total == pytest.approx(0.01, rel=1e-3)
    assert total < 0.01


@pytest.mark.parametrize("cases", [1, 5, 25])
def test_over_a_run_of_many_cases_the_whole_error_stays_under_alpha(cases: int) -> None:
    """All cases at their target, where errors are likeliest: the chance of any wrong MISSED in a run."""
    settings = Settings(alpha=0.05, cases=cases)
    noise = Noise(0.001, 0.0, "test")
    a_case = simulate(0.9, 0.9, settings.alpha_a_case, noise, 0.003, SHAPES["normal"])["MISSED"]
    assert 1.0 - (1.0 - a_case) ** cases <= at_most(settings.alpha)
    assert settings.alpha_a_case * cases == pytest.approx(settings.alpha)
