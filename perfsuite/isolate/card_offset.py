"""The cost of a sample of an isolated side beside its calls: the order, and what a change of processes takes."""

from __future__ import annotations

import statistics
from collections.abc import Callable

from perfsuite.isolate.card_queue import TINIES, TINY, TINY_KERNELS

COST_ORDERS = 7
BEYOND = 10e-6
"""Seconds that a sample costs beyond the order of a tiny kernel: a card that changes processes fetches the code of the
kernels anew. Samples of both sides of four problems took 7.9 to 21.3 us longer on an H200 than in one process (median
11.2); those of 16 gates 5.5 with an earlier protocol.

No set-up measures it again for each side. A measurement is a difference of three samples. With 15 of them it varied by
2 to 4 us between set-ups, and what was taken off both sides differed by up to 3.5 us, 0.4 % of a sample. Over 16
set-ups the sides differed by 0.4 us, with a spread of 2.2: no more than their noise. An equal cost cancels where the
sides are equally fast, and no candidate can change it.
"""


def order_costs(run: Callable[[list[int]], float]) -> tuple[float, float]:
    """(seconds that a sample of one graph costs beside its calls; of the gap between two graphs).

    run: the seconds of an order of these graphs, in a process of trusted code.
    """
    costs, gaps = [], []
    for _ in range(COST_ORDERS):
        many, one, two = (run(keys) for keys in ([TINIES], [TINY], [TINY, TINY]))
        kernel = (many - one) / (TINY_KERNELS - 1)
        costs.append(one - kernel)
        gaps.append(two - one - kernel)
    return max(0.0, statistics.median(costs)) + BEYOND, max(0.0, statistics.median(gaps))
