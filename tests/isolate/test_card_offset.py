"""What a sample of an isolated side costs beside its calls, on a made-up card."""

from __future__ import annotations

import statistics
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from perfsuite.clock.rounds import SIDES
from perfsuite.isolate import card_clock
from perfsuite.isolate.card_clock import IsolatedCardClock
from perfsuite.isolate.card_offset import COST_ORDERS, FRESH_ORDERS, Beyond, order_costs
from perfsuite.isolate.card_queue import TINIES, TINY, TINY_KERNELS

ORDER, GAP, KERNEL = 290e-6, 2e-6, 1.5e-6
"""Seconds, on a made-up card: of an order without kernels, between two graphs, of a tiny kernel."""


CALLS, SAMPLE, OTHER_SAMPLE = 800e-6, 10, 11
"""Seconds of a sample's calls, and the keys of two samples' graphs."""


def measured(noise: float, random: Random, beyond: float = 0.0) -> IsolatedCardClock:
    """A clock that has measured what a sample costs. noise, beyond: of a sample, and beyond an order, in seconds."""
    clock = IsolatedCardClock.__new__(IsolatedCardClock)
    kernels = {TINY: KERNEL, TINIES: TINY_KERNELS * KERNEL, SAMPLE: CALLS, OTHER_SAMPLE: 1.02 * CALLS}

    def run(side: str, keys: list[int]) -> float:
        assert side == "rival"  # nothing that a candidate does may be taken off its time
        more = beyond if keys[0] in (SAMPLE, OTHER_SAMPLE) else 0.0
        return ORDER + more + random.gauss(0.0, noise) + sum(kernels[key] for key in keys) + (len(keys) - 1) * GAP

    clock.run = run  # type: ignore[assignment, method-assign]
    clock.sides = SimpleNamespace(written=None)  # type: ignore[assignment]
    clock._workers = {"rival": SimpleNamespace(remote=SimpleNamespace(order_costs=[]))}  # type: ignore[dict-item]
    clock._tracks = [
        SimpleNamespace(captured=lambda side, key=key: SimpleNamespace(graphs=[SimpleNamespace(key=key)]))  # type: ignore[misc]
        for key in (SAMPLE, OTHER_SAMPLE)
    ]
    clock._measure_costs()
    clock._overhead, clock._seconds, clock._delays = clock._event_cost + clock._beyond_an_order(), 0.0, {}
    return clock


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test begins as a process does."""
    monkeypatch.setattr(card_clock, "BEYOND", Beyond())


def speed(cost: dict[Any, float], ratio: float, noise: float, random: Random) -> float:
    """The speed that a set-up of many rounds finds, of samples of 0.8 ms and `ratio` times that.

    cost: of a sample of each side beyond an order, in seconds. noise: of an order and of a sample.
    """
    clock, found = measured(noise, random, cost["rival"]), []
    calls: dict[Any, float] = {"candidate": 800e-6, "rival": 800e-6 * ratio}
    for _ in range(40):
        spans = [ORDER + cost[side] + random.gauss(calls[side], noise) for side in SIDES]
        events = [SimpleNamespace(elapsed_time=lambda _, span=span: span * 1e3) for span in spans for _ in range(2)]
        one = clock._read(list(SIDES), events)
        found.append(one["rival"] / one["candidate"])
    return statistics.median(found)


def test_what_a_sample_costs_is_an_order_and_what_a_change_of_processes_takes() -> None:
    clock = measured(0.0, Random(1), 13e-6)
    assert (clock._event_cost, clock._gap) == (pytest.approx(ORDER), pytest.approx(GAP))
    assert clock._overhead == pytest.approx(ORDER + 13e-6, rel=1e-6)


@pytest.mark.parametrize("beyond", [-3e-6, 0.0, 13e-6])
def test_many_set_ups_find_what_one_measures_badly(beyond: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """A measurement with samples that are off by 4 us each is off by some 8."""
    random, found = Random(9), list[float]()
    for _ in range(20):
        monkeypatch.setattr(card_clock, "BEYOND", Beyond())
        found += [measured(4e-6, random, beyond)._overhead for _ in range(70)][-1:]
    assert statistics.median(found) == pytest.approx(ORDER + beyond, abs=1.5e-6)
    assert statistics.pstdev(found) < 3e-6


def test_long_samples_are_not_taken_twice() -> None:
    taken: list[list[int]] = []

    def run(keys: list[int]) -> float:
        taken.append(keys)
        return 20e-3

    assert Beyond().seconds(run, ([1], [2]), (ORDER, GAP)) == 0.0
    assert taken == [[1]]


def orders(order: float, noise: float, random: Random, known: list[Any]) -> tuple[float, float, int]:
    """(the cost of an order that a set-up finds, of the gap, orders that it takes), on a made-up card."""
    taken = 0

    def run(keys: list[int]) -> float:
        nonlocal taken
        taken += 1
        kernels = sum({TINY: KERNEL, TINIES: TINY_KERNELS * KERNEL}[key] for key in keys)
        return order + random.gauss(0.0, noise) + kernels + (len(keys) - 1) * GAP

    cost, gap = order_costs(run, known)
    return cost, gap, taken


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
@pytest.mark.parametrize("beyond", [-4e-6, 0.0, 12e-6])
def test_an_error_of_what_a_sample_costs_is_both_sides(ratio: float, most: float, beyond: float) -> None:
    """Measured for each side, it differed from set-up to set-up, and sides of equal speed by 0.2 % with it."""
    random = Random(3)
    errors = [speed(dict.fromkeys(SIDES, beyond), ratio, 2e-6, random) / ratio - 1.0 for _ in range(60)]
    assert statistics.median(errors) == pytest.approx(0.0, abs=most)
    assert statistics.pstdev(errors) < 0.0012
    apart = [speed({"candidate": beyond, "rival": beyond + 2e-6}, ratio, 2e-6, random) / ratio - 1.0 for _ in range(60)]
    assert statistics.median(apart) == pytest.approx(0.0, abs=most + 0.0026)  # 2 us of 800
