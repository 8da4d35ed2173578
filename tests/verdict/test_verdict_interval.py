"""Intervals hold as often as they say."""

from __future__ import annotations

import math

import numpy as np
import pytest

from perfsuite.verdict.interval import median_interval, normal_quantile, rank_for, rounds_needed


@pytest.mark.parametrize(("count", "alpha"), [(5, 0.05), (20, 5e-4), (20, 1e-4), (33, 2e-3), (101, 1e-6)])
def test_rank_is_the_largest_that_spends_no_more_than_alpha(count: int, alpha: float) -> None:
    def spent(rank: int) -> float:
        return sum(math.comb(count, below) for below in range(rank)) / 2**count

    rank = rank_for(count, alpha)
    assert spent(rank) <= alpha < spent(rank + 1)


def test_too_few_values_give_no_interval() -> None:
    assert median_interval([1.0, 1.1, 0.9], 0.01) == (-math.inf, math.inf)


@pytest.mark.parametrize("alpha", [0.05, 1e-3, 1e-6])
def test_rounds_needed_is_where_the_interval_becomes_finite(alpha: float) -> None:
    enough = rounds_needed(alpha)
    assert rank_for(enough, alpha) == 1
    assert rank_for(enough - 1, alpha) == 0


@pytest.mark.parametrize("draw", ["normal", "cauchy", "skewed", "two-humped"])
def test_each_end_is_wrong_no_more_often_than_alpha(draw: str) -> None:
    random = np.random.default_rng(7)
    trials, count, alpha = 10_000, 20, 0.02
    values = {
        "normal": lambda: random.normal(0.0, 1.0, (trials, count)),
        "cauchy": lambda: random.standard_cauchy((trials, count)),
        "skewed": lambda: random.lognormal(0.0, 1.0, (trials, count)) - 1.0,
        "two-humped": lambda: random.normal(0.0, 0.1, (trials, count)) + random.choice([-1.0, 1.0], (trials, count)),
    }[draw]()
    rank = rank_for(count, alpha)
    ordered = np.sort(values, axis=1)
    bound = alpha + 4.0 * math.sqrt(alpha / trials)
    assert (ordered[:, rank - 1] > 0.0).mean() <= bound
    assert (ordered[:, count - rank] < 0.0).mean() <= bound
    assert median_interval(list(values[0]), alpha) == (ordered[0, rank - 1], ordered[0, count - rank])


def test_normal_quantile() -> None:
    assert normal_quantile(0.025) == pytest.approx(1.959964, abs=1e-6)
