"""The cost of a sample of an isolated side beside its calls: the order, and what a change of processes takes."""

from __future__ import annotations

import statistics
from collections.abc import Callable

from perfsuite.isolate.card_queue import TINIES, TINY, TINY_KERNELS

Cost = tuple[float, float]
"""Seconds that an order of one graph takes beyond its kernel, and of the gap between two graphs."""
COST_ORDERS, FRESH_ORDERS = 7, 2
"""Measurements of which medians are taken, and those of them that each set-up makes: the others are the last ones of
the same process. In nine jobs one after another an order took 289.9 to 291.2 us on an H200. All seven take 36 ms, in
which nobody else uses the card; a job has it for itself for 0.2 s."""
CHANGED_SECONDS = 3e-6
"""If the new measurements differ from the earlier ones by more, the earlier ones are forgotten."""
BEYOND = 10e-6
"""Seconds that a sample costs beyond the order of a tiny kernel: a card that changes processes fetches the code of the
kernels anew. Samples of both sides of four problems took 7.9 to 21.3 us longer on an H200 than in one process (median
11.2); those of 16 gates 5.5 with an earlier protocol.

No set-up measures it again for each side. A measurement is a difference of three samples. With 15 of them it varied by
2 to 4 us between set-ups, and what was taken off both sides differed by up to 3.5 us, 0.4 % of a sample. Over 16
set-ups the sides differed by 0.4 us, with a spread of 2.2: no more than their noise. An equal cost cancels where the
sides are equally fast, and no candidate can change it.
"""


def order_costs(run: Callable[[list[int]], float], known: list[Cost]) -> Cost:
    """(seconds that a sample of one graph costs beside its calls; of the gap between two graphs).

    run: the seconds of an order of these graphs, in a process of trusted code. known: the last measurements in that
    process, which this renews.
    """
    fresh = [_measured(run) for _ in range(FRESH_ORDERS)]
    if known and abs(_median(fresh, 0) - _median(known, 0)) > CHANGED_SECONDS:
        known.clear()
    known += fresh
    while len(known) < COST_ORDERS:
        known.append(_measured(run))
    del known[:-COST_ORDERS]
    return max(0.0, _median(known, 0)) + BEYOND, max(0.0, _median(known, 1))


def _measured(run: Callable[[list[int]], float]) -> Cost:
    many, one, two = (run(keys) for keys in ([TINIES], [TINY], [TINY, TINY]))
    kernel = (many - one) / (TINY_KERNELS - 1)
    return one - kernel, two - one - kernel


def _median(measured: list[Cost], place: int) -> float:
    return statistics.median(one[place] for one in measured)
