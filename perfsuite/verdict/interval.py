"""Intervals that assume no distribution: for a median from order statistics, for a rate from the binomial."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist


def rank_for(count: int, alpha: float) -> int:
    """The largest j for which P(Binomial(count, 1/2) < j) <= alpha; 0 where even j = 1 spends more than alpha.

    The j-th smallest of `count` independent values then lies above their common median with probability at most
    `alpha`, whatever their distribution (H. A. David and H. N. Nagaraja, Order Statistics, 3rd ed., section 7.1).
    """
    below, total = 0.0, 2.0**-count
    rank = 0
    for successes in range(count):
        below += total
        if below > alpha:
            break
        rank = successes + 1
        total *= (count - successes) / (successes + 1)
    return min(rank, (count + 1) // 2)


def median_interval(values: Sequence[float], alpha: float) -> tuple[float, float]:
    """Interval on the median, each end wrong with probability at most `alpha`; infinite where values are too few."""
    rank = rank_for(len(values), alpha)
    if rank == 0:
        return -math.inf, math.inf
    ordered = sorted(values)
    return ordered[rank - 1], ordered[len(ordered) - rank]


def rounds_needed(alpha: float) -> int:
    """The fewest values from which `median_interval` gives a finite interval at `alpha`."""
    return max(1, math.ceil(-math.log2(alpha)))


def normal_quantile(alpha: float) -> float:
    """z with P(Z > z) = alpha for a standard normal Z."""
    return NormalDist().inv_cdf(1.0 - alpha)


def clopper_pearson(successes: int, trials: int, confidence: float = 0.95) -> tuple[float, float]:
    """Exact two-sided interval on a rate (C. J. Clopper and E. S. Pearson, Biometrika 26, 1934).

    Raises ValueError where the counts are impossible.
    """
    if not 0 <= successes <= trials or trials == 0:
        raise ValueError(f"{successes} of {trials} is no rate: 0 <= successes <= trials and trials > 0 are needed")
    tail = (1.0 - confidence) / 2.0
    low = 0.0 if successes == 0 else _solve(lambda rate: 1.0 - _binomial_cdf(successes - 1, trials, rate), tail)
    high = 1.0 if successes == trials else _solve(lambda rate: -_binomial_cdf(successes, trials, rate), -tail)
    return low, high


def _binomial_cdf(successes: int, trials: int, rate: float) -> float:
    if rate <= 0.0:
        return 1.0
    if rate >= 1.0:
        return 1.0 if successes >= trials else 0.0
    logs = [
        math.lgamma(trials + 1)
        - math.lgamma(k + 1)
        - math.lgamma(trials - k + 1)
        + k * math.log(rate)
        + (trials - k) * math.log1p(-rate)
        for k in range(successes + 1)
    ]
    return min(1.0, math.fsum(math.exp(one) for one in logs))


def _solve(rising: object, level: float) -> float:
    """The rate in (0, 1) at which the rising function `rising` reaches `level`, by bisection."""
    assert callable(rising)
    low, high = 0.0, 1.0
    for _ in range(100):
        middle = (low + high) / 2.0
        if rising(middle) < level:
            low = middle
        else:
            high = middle
    return (low + high) / 2.0
