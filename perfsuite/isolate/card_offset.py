"""The cost of a sample of an isolated side beyond the order of a tiny kernel, from measurements with noise."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence

from perfsuite.clock.rounds import SIDES, Side
from perfsuite.isolate.card_queue import TINIES, TINY, TINY_KERNELS

COST_ORDERS = 15
FEWEST_OFFSETS, OFFSETS, OFFSETS_SECONDS = 4, 25, 0.1
"""Times that a sample's offset is measured: the fewest that tell their noise; in each set-up at most, and how long."""
USUAL_BEYOND, USUAL_SPREAD, MOST_BEYOND = 5.5e-6, 2e-6, 15e-6
"""Seconds that a change of processes costs a sample, as 16 samples on an H200 took longer in workers than in the
parent's process: mean and spread; and the most that is believed, since a candidate could make its samples apart slower.
A cold L2 costs the first calls of a long sample more, but within one process it does so as well, and counts there."""
NORMAL_IQR, MEDIAN_ERROR = 1.349, 1.2533
"""Of a normal distribution: quartiles' distance, and standard error of a median over that of a mean."""


def beyond(offsets: Mapping[Side, Sequence[float]], order: float) -> dict[Side, float]:
    """Seconds by which a sample of each side costs more than a tiny kernel's order. offsets, order: seconds."""
    return {side: settled([one - order for one in offsets[side]]) for side in SIDES}


def order_costs(run: Callable[[int, list[int]], float]) -> tuple[float, float]:
    """(seconds of an order of one tiny kernel, less the kernel's own; of the gap between two graphs).

    run: the seconds of an order of these graphs, by its number.
    """
    costs, gaps = [], []
    for number in range(COST_ORDERS):
        many, one, two = (run(number, keys) for keys in ([TINIES], [TINY], [TINY, TINY]))
        kernel = (many - one) / (TINY_KERNELS - 1)
        costs.append(one - kernel)
        gaps.append(two - one - kernel)
    return max(0.0, statistics.median(costs)), max(0.0, statistics.median(gaps))


def settled(measured: Sequence[float]) -> float:
    """Seconds that a sample costs beyond a tiny kernel's order: the median, drawn to the usual cost where it is noisy.

    It is a difference of three samples, so of long ones it varies by more than it amounts to. Median and usual cost are
    weighted by their inverse variances. The quartiles give the median's, since a busy host adds outliers.
    """
    if len(measured) < FEWEST_OFFSETS:
        return USUAL_BEYOND
    low, middle, high = statistics.quantiles(measured, n=4)
    error = MEDIAN_ERROR * (high - low) / NORMAL_IQR / math.sqrt(len(measured))
    believed = USUAL_SPREAD**2 / (USUAL_SPREAD**2 + error**2)
    return min(max(0.0, believed * middle + (1.0 - believed) * USUAL_BEYOND), MOST_BEYOND)
