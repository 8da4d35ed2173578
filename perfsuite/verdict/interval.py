"""Intervals on a median from order statistics, which assume no distribution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist


def rank_for(count: int, alpha: float) -> int:
    """The largest j with P(Binomial(count, 1/2) < j) <= alpha; 0 if even j = 1 spends more than alpha.

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
    """Interval on the median, each end wrong with probability at most `alpha`; infinite for too few values."""
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
