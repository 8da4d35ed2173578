"""The time that a cost model loses by its choices, where all plans of a product were timed.

The regret of a product is the time of the plan that the model puts first, over that of the quickest, less one. The
quickest of many noisy times is a little too quick, so a perfect model has a regret above zero, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cost_models.times import Rows, Seconds

FOLDS = 5
FEWEST_PLANS = 10
"""Products with fewer timed plans say little of a choice."""
EDGES = (5.0, 10.0, 25.0, 100.0)
"""Microseconds that divide products into classes."""


@dataclass(frozen=True)
class Products:
    """The products of a file of times, and the plans of each."""

    keys: list[tuple[int, ...]]
    of: list[npt.NDArray[np.int64]]
    """The rows of each product."""

    @classmethod
    def of_rows(
        cls, rows: Rows, key: Callable[[Sequence[int]], tuple[int, ...]], fewest: int = FEWEST_PLANS
    ) -> Products:
        """key: what tells the product of a row. Products of fewer than `fewest` rows are left out."""
        found: dict[tuple[int, ...], list[int]] = {}
        for number, row in enumerate(rows.tolist()):
            found.setdefault(key(row), []).append(number)
        kept = {one: numbers for one, numbers in found.items() if len(numbers) >= fewest}
        return cls(list(kept), [np.array(numbers) for numbers in kept.values()])


def near_best(products: Products, measured: Seconds, within: float) -> npt.NDArray[np.bool_]:
    """The rows of plans that take at most that share longer than the quickest of their product: choices are among them.

    Rows of products that are left out are all there.
    """
    near = np.ones(len(measured), dtype=bool)
    for of in products.of:
        near[of] = measured[of] <= (1.0 + within) * measured[of].min()
    return near


def regrets(products: Products, chosen: Seconds, measured: Seconds) -> npt.NDArray[np.float64]:
    """The regret of each product. chosen: the model's time of each row, by which it chooses."""
    return np.array([measured[of[np.argmin(chosen[of])]] / measured[of].min() - 1.0 for of in products.of])


def by_quickest(products: Products, found: npt.NDArray[np.float64], measured: Seconds) -> dict[str, tuple[int, float]]:
    """Products by the microseconds of their quickest plan -> their number, and the mean of `found`."""
    quickest = np.array([measured[of].min() for of in products.of])
    classes = {}
    for least, most in zip((0.0, *EDGES), (*EDGES, np.inf), strict=True):
        chosen = (quickest >= least) & (quickest < most)
        if chosen.any():
            name = f"{least:g} us and more" if most == np.inf else f"{least:g} to {most:g} us"
            classes[name] = int(chosen.sum()), float(found[chosen].mean())
    return classes


def held_out(
    products: Products, rows: Rows, measured: Seconds, fit: Callable[[Rows, Seconds], Callable[[Rows], Seconds]]
) -> npt.NDArray[np.float64]:
    """The regret of each product by a model that was fitted to the others: FOLDS fits, each without a part of them.

    fit: rows and microseconds -> a function that gives each row the time by which the model chooses.
    """
    found = np.zeros(len(products.of))
    for fold in range(FOLDS):
        out = [number for number in range(len(products.of)) if number % FOLDS == fold]
        left_out = np.zeros(len(rows), dtype=bool)
        for number in out:
            left_out[products.of[number]] = True
        chosen = fit(rows[~left_out], measured[~left_out])(rows)
        found[out] = regrets(products, chosen, measured)[out]
    return found
