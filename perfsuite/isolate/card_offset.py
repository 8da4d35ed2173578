"""The cost of a sample of an isolated side beside its calls: the order, and what a change of processes takes."""

from __future__ import annotations

import statistics
from collections import deque
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
KEPT_SAMPLES, FIRST_SAMPLES, LONGEST_SAMPLE_SECONDS = 64, 9, 5e-3
"""Measurements of what a sample costs beyond an order, of which the median is taken; those of the first set-up, while
later ones add one each; and the longest sample that is taken twice for it. Of longer ones the cost is a small part."""


def order_costs(run: Callable[[list[int]], float], known: list[Cost]) -> Cost:
    """(seconds that an order of one graph costs beside its kernels; of the gap between two graphs).

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
    return max(0.0, _median(known, 0)), max(0.0, _median(known, 1))


class Beyond:
    """The cost of a sample beyond the order of a tiny kernel: the card fetches the code of the kernels anew, for one.

    A constant will not do. On one H200 samples took 7.9 to 21.3 us longer than in one process. On another day 10 us
    were too much: 64 samples of 32 problems were 11 us shorter in the median (the records of commit 5715dfd6).

    A measurement is a difference of three samples. A mean of 15 varied by 2 to 4 us between set-ups, so one is off by
    some 10. Measured for each side, what was taken off both differed by up to 3.5 us, 0.4 % of a sample. So all set-ups
    of this process share the last measurements, which come from rivals. Over 16 set-ups the sides' costs differed by
    0.4 us, with a spread of 2.2. An equal cost cancels where both are equally fast, and no candidate can change it.
    """

    def __init__(self) -> None:
        self._known: deque[float] = deque(maxlen=KEPT_SAMPLES)

    def seconds(self, run: Callable[[list[int]], float], samples: tuple[list[int], list[int]], costs: Cost) -> float:
        """The seconds that a sample costs beyond an order, by all measurements so far.

        run: the seconds of an order of these graphs, in a process of trusted code. samples: the graphs of two samples.
        costs: what `order_costs` has found.
        """
        order, gap = costs
        first, second = samples
        for _ in range(1 if self._known else FIRST_SAMPLES):
            one = run(first)
            if one > LONGEST_SAMPLE_SECONDS:
                break
            self._known.append(one + run(second) - run(first + second) + gap - order)
        return statistics.median(self._known) if self._known else 0.0


BEYOND = Beyond()
"""Of this process and its card."""


def _measured(run: Callable[[list[int]], float]) -> Cost:
    many, one, two = (run(keys) for keys in ([TINIES], [TINY], [TINY, TINY]))
    kernel = (many - one) / (TINY_KERNELS - 1)
    return one - kernel, two - one - kernel


def _median(measured: list[Cost], place: int) -> float:
    return statistics.median(one[place] for one in measured)
