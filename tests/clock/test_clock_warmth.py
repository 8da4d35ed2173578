"""Warming up: how long a card is kept busy, and what its clock is."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
import torch
from made_up_card import Card, card

from perfsuite.clock import warmth
from perfsuite.clock.warmth import CHUNK_SECONDS, LIMITED_SECONDS, Probe, warm_up

__all__ = ["card"]


class Busy:
    """Samples of both sides that take so long, added up."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.total, self.chunks = seconds, 0.0, 0

    def __call__(self, samples: int) -> float:
        self.chunks += 1
        self.total += samples * self.seconds
        return samples * self.seconds


def readings(*values: float | None) -> Iterator[float | None]:
    return itertools.chain(values, itertools.repeat(values[-1]))


def test_a_card_at_its_full_clock_is_soon_ready() -> None:
    busy, clocks = Busy(4e-4), readings(1.97e9)
    assert warm_up(busy, lambda: next(clocks), 1.98e9, LIMITED_SECONDS)
    assert busy.chunks == warmth.READINGS
    assert busy.total == pytest.approx(3 * CHUNK_SECONDS + 4e-4)


@pytest.mark.parametrize("full", [1.98e9, None])
def test_a_card_that_is_limited_is_kept_busy(full: float | None) -> None:
    busy, clocks = Busy(4e-4), readings(1.98e9, 1.5e9, 1.45e9, 1.5e9)
    assert warm_up(busy, lambda: next(clocks), full, LIMITED_SECONDS)
    assert LIMITED_SECONDS <= busy.total < LIMITED_SECONDS + CHUNK_SECONDS


@pytest.mark.parametrize("last", [(1.2e9, 1.4e9), (None,)])
def test_a_clock_that_still_moves_or_is_unknown_has_not_settled(last: tuple[float | None, ...]) -> None:
    busy, clocks = Busy(4e-4), itertools.cycle(last)
    assert not warm_up(busy, lambda: next(clocks), 1.98e9, LIMITED_SECONDS)
    assert busy.total < LIMITED_SECONDS + CHUNK_SECONDS


def test_long_samples_run_once_a_chunk() -> None:
    busy = Busy(15e-3)
    warm_up(busy, lambda: 1.2e9, 1.98e9, LIMITED_SECONDS)
    assert busy.chunks == 3


def test_warming_up_ends_with_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warmth, "BOUND_SECONDS", -1.0)
    busy = Busy(1e-6)
    warm_up(busy, lambda: 1.2e9, 1.98e9, LIMITED_SECONDS)
    assert busy.chunks == 1


def test_the_clock_comes_from_a_known_number_of_cycles_whatever_a_launch_costs(card: Card) -> None:
    assert Probe().read() == pytest.approx(2e9)


def test_a_first_launch_that_is_late_does_not_make_the_clock_faster(
    card: Card, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = itertools.chain([30e-6], itertools.repeat(0.0))
    monkeypatch.setattr(torch.cuda, "_sleep", lambda cycles: card.work(next(late) + cycles / 2e9))
    assert Probe().read() == pytest.approx(2e9)


def test_a_host_that_is_late_for_the_kernels_gives_no_reading(card: Card, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda.Event, "query", lambda event: True)
    assert Probe().read() is None
