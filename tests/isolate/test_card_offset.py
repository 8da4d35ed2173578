"""What a sample of an isolated side costs beside its calls, on a made-up card."""

from __future__ import annotations

import statistics
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from perfsuite.clock.rounds import SIDES
from perfsuite.isolate.card_clock import IsolatedCardClock
from perfsuite.isolate.card_offset import BEYOND, COST_ORDERS, FRESH_ORDERS, order_costs
from perfsuite.isolate.card_queue import TINIES, TINY, TINY_KERNELS

ORDER, GAP, KERNEL = 290e-6, 2e-6, 1.5e-6
"""Seconds, on a made-up card: of an order without kernels, between two graphs, of a tiny kernel."""


def measured(noise: float, random: Random) -> IsolatedCardClock:
    """A clock that has measured what a sample costs. noise: of an order, in seconds."""
    clock = IsolatedCardClock.__new__(IsolatedCardClock)
    kernels = {TINY: KERNEL, TINIES: TINY_KERNELS * KERNEL}

    def run(side: str, keys: list[int]) -> float:
        assert side == "rival"  # nothing that a candidate does may be taken off its time
        return ORDER + random.gauss(0.0, noise) + sum(kernels[key] for key in keys) + (len(keys) - 1) * GAP

    clock.run = run  # type: ignore[assignment, method-assign]
    clock._workers = {"rival": SimpleNamespace(remote=SimpleNamespace(order_costs=[]))}  # type: ignore[dict-item]
    clock._measure_costs()
    clock._overhead, clock._seconds, clock._delays = clock._event_cost, 0.0, {}
    return clock


def speed(cost: dict[Any, float], ratio: float, noise: float, random: Random) -> float:
    """The speed that a set-up of many rounds finds, of samples of 0.8 ms and `ratio` times that.

    cost: of a sample of each side beyond an order, in seconds. noise: of an order and of a sample.
    """
    clock, found = measured(noise, random), []
    calls: dict[Any, float] = {"candidate": 800e-6, "rival": 800e-6 * ratio}
    for _ in range(40):
        spans = [ORDER + cost[side] + random.gauss(calls[side], noise) for side in SIDES]
        events = [SimpleNamespace(elapsed_time=lambda _, span=span: span * 1e3) for span in spans for _ in range(2)]
        one = clock._read(list(SIDES), events)
        found.append(one["rival"] / one["candidate"])
    return statistics.median(found)


def test_what_a_sample_costs_is_an_order_and_what_a_change_of_processes_takes() -> None:
    clock = measured(0.0, Random(1))
    assert (clock._event_cost, clock._gap) == (pytest.approx(ORDER + BEYOND), pytest.approx(GAP))


def orders(order: float, noise: float, random: Random, known: list[Any]) -> tuple[float, float, int]:
    """(the cost that a set-up finds beyond BEYOND, of the gap, orders that it takes), on a made-up card."""
    taken = 0

    def run(keys: list[int]) -> float:
        nonlocal taken
        taken += 1
        kernels = sum({TINY: KERNEL, TINIES: TINY_KERNELS * KERNEL}[key] for key in keys)
        return order + random.gauss(0.0, noise) + kernels + (len(keys) - 1) * GAP

    cost, gap = order_costs(run, known)
    return cost - BEYOND, gap, taken


def test_a_later_set_up_takes_few_orders_and_errs_no_more_than_the_first() -> None:
    random, known, firsts, laters = Random(5), list[Any](), list[float](), list[float]()
    for _ in range(200):
        known.clear()
        cost, _, taken = orders(ORDER, 1e-6, random, known)
        firsts.append(cost)
        assert taken == 3 * COST_ORDERS
        for _ in range(5):
            cost, _, taken = orders(ORDER, 1e-6, random, known)
            laters.append(cost)
            assert taken in (3 * FRESH_ORDERS, 3 * COST_ORDERS)
            assert len(known) == COST_ORDERS
    assert statistics.median(laters) == pytest.approx(ORDER, abs=2e-7)
    assert statistics.pstdev(laters) <= 1.1 * statistics.pstdev(firsts)


@pytest.mark.parametrize("apart", [-20e-6, -4e-6, 4e-6, 20e-6])
def test_what_orders_have_cost_is_forgotten_when_they_cost_something_else(apart: float) -> None:
    known: list[Any] = []
    orders(ORDER, 0.0, Random(7), known)
    cost, gap, taken = orders(ORDER + apart, 0.0, Random(7), known)
    assert (cost, gap, taken) == (pytest.approx(ORDER + apart), pytest.approx(GAP), 3 * COST_ORDERS)
    assert orders(ORDER + apart, 0.0, Random(7), known)[2] == 3 * FRESH_ORDERS


@pytest.mark.parametrize(("ratio", "most"), [(1.0, 0.0005), (1.1, 0.0006), (1.5, 0.0019)])
@pytest.mark.parametrize("beyond", [BEYOND - 4e-6, BEYOND, BEYOND + 4e-6], ids=["less", "as much", "more"])
def test_an_error_of_what_a_sample_costs_is_both_sides(ratio: float, most: float, beyond: float) -> None:
    """Measured for each side, it differed from set-up to set-up, and sides of equal speed by 0.2 % with it."""
    random = Random(3)
    errors = [speed(dict.fromkeys(SIDES, beyond), ratio, 2e-6, random) / ratio - 1.0 for _ in range(60)]
    assert statistics.median(errors) == pytest.approx(0.0, abs=most)
    assert statistics.pstdev(errors) < 0.0012
    apart = [speed({"candidate": beyond, "rival": beyond + 2e-6}, ratio, 2e-6, random) / ratio - 1.0 for _ in range(60)]
    assert statistics.median(apart) == pytest.approx(0.0, abs=most + 0.0026)  # 2 us of 800
