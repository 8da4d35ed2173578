"""The graph clock on a made-up card: what is captured, in which order it is replayed, what comes of the times."""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from perfsuite.clock import cuda, graph
from perfsuite.clock.base import CaptureError, Sides
from perfsuite.problems.base import Inputs

EVENT_COST = 2.5e-6
GAP = 1.0e-6


class Card:
    """Time passes only by what is enqueued: calls, replays, spins."""

    def __init__(self) -> None:
        self.now = 0.0
        self.capturing: FakeGraph | None = None
        self.replays: list[FakeGraph] = []
        self.idle = True

    def work(self, seconds: float) -> None:
        if self.capturing is not None:
            self.capturing.items.append(seconds)
        else:
            self.now += seconds


class FakeGraph:
    card: Card

    def __init__(self) -> None:
        self.items: list[Any] = []

    def capture_begin(self, pool: Any = None, capture_error_mode: str = "global") -> None:
        self.card.capturing = self

    def capture_end(self) -> None:
        self.card.capturing = None

    def replay(self) -> None:
        self.card.replays.append(self)
        if not self.card.idle:
            self.card.now += GAP
        self.card.idle = False
        for item in self.items:
            if isinstance(item, FakeEvent):
                item.at = self.card.now
            else:
                self.card.now += item

    def reset(self) -> None:
        self.items = []


class FakeEvent:
    card: Card

    def __init__(self, enable_timing: bool = False, external: bool = False) -> None:
        self.external = external
        self.at = 0.0

    def record(self) -> None:
        if self.external and self.card.capturing is not None:
            self.card.capturing.items.append(self)
            return
        self.card.now += EVENT_COST / 2
        self.at = self.card.now
        self.card.now += EVENT_COST / 2
        self.card.idle = True

    def synchronize(self) -> None:
        self.card.idle = True

    def elapsed_time(self, other: FakeEvent) -> float:
        return (other.at - self.at) * 1e3


class FakeStream:
    def synchronize(self) -> None:
        """Nothing runs behind anyone's back."""


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> Iterator[Card]:
    made = Card()
    monkeypatch.setattr(FakeGraph, "card", made, raising=False)
    monkeypatch.setattr(FakeEvent, "card", made, raising=False)
    facts = SimpleNamespace(uuid="none", L2_cache_size=4096, total_memory=1e12)
    for name, value in {
        "CUDAGraph": FakeGraph,
        "Event": FakeEvent,
        "Stream": FakeStream,
        "stream": lambda _: contextlib.nullcontext(),
        "current_stream": FakeStream,
        "current_device": lambda: 0,
        "graph_pool_handle": lambda: (0, 1),
        "get_device_properties": lambda _: facts,
        "memory_reserved": lambda: 0,
        "_sleep": lambda cycles: made.work(cycles / 2e9),
    }.items():
        monkeypatch.setattr(torch.cuda, name, value, raising=False)
    for maker in ("zeros", "empty"):
        plain = getattr(torch, maker)
        monkeypatch.setattr(torch, maker, _on_cpu(plain))
    monkeypatch.setattr(cuda, "reset_persisting_l2", lambda: True)
    return made


def _on_cpu(plain: Callable[..., Any]) -> Callable[..., Any]:
    def make(*size: Any, **options: Any) -> Any:
        return plain(*size, **{name: value for name, value in options.items() if name != "device"})

    return make


def takes(card: Card, seconds: float) -> Callable[..., torch.Tensor]:
    def kernel(a: torch.Tensor) -> torch.Tensor:
        card.work(seconds)
        return a + 1.0

    return kernel


def clock_of(card: Card, candidate: float, rival: float, *, size: int = 256, **options: Any) -> graph.GraphClock:
    sides = Sides(takes(card, candidate), takes(card, rival), lambda: Inputs((torch.randn(size),)))
    made = graph.GraphClock(sides, **options)
    made.setup()
    return made


@pytest.mark.parametrize(
    ("candidate", "rival"), [(4e-6, 3e-6), (10e-6, 10.1e-6), (150e-6, 100e-6), (2e-3, 2e-3), (5e-2, 1e-4)]
)
def test_times_and_ratio_come_out_whatever_the_length_of_a_call(card: Card, candidate: float, rival: float) -> None:
    clock = clock_of(card, candidate, rival)
    for _ in range(3):
        rounds = clock.rounds(10)
        assert statistics.median(one.candidate_seconds for one in rounds) == pytest.approx(candidate, rel=2e-3)
        assert statistics.median(one.rival_seconds for one in rounds) == pytest.approx(rival, rel=2e-3)
        assert {one.first for one in rounds} == {"candidate", "rival"}
        clock.setup()
    assert rounds[0].setup == 2
    assert clock.seconds_spent > 30 * clock.launches * (candidate + rival)
    clock.close()


def test_a_sample_is_a_pass_over_the_whole_rotation(card: Card) -> None:
    clock = clock_of(card, 20e-6, 20e-6)
    assert clock.rotation == 1 + 3 * 4096 // 1024
    (track,) = clock._tracks
    assert [index for piece in track for index in piece.indices] == list(range(clock.rotation))
    assert len(track) > 1
    assert [piece.last for piece in track] == [False] * (len(track) - 1) + [True]
    assert sum(len(piece.graphs["rival"]) for piece in track) >= graph.FEWEST_GRAPHS


def test_a_rotation_that_takes_long_is_used_part_by_part(card: Card) -> None:
    clock = clock_of(card, 1e-3, 1e-3)
    assert clock.launches == 1
    used = [index for track in clock._tracks for piece in track for index in piece.indices]
    assert used == list(range(clock.rotation))
    card.replays.clear()
    clock.rounds(clock.rotation)
    assert len({id(one) for one in card.replays}) >= clock.rotation


def test_hot_inputs_are_one_set(card: Card) -> None:
    clock = clock_of(card, 5e-6, 5e-6, cache="hot")
    assert (clock.rotation, clock.warnings) == (1, [])
    assert clock.launches * 5e-6 >= graph.SAMPLE_SECONDS * 0.999


def test_timed_calls_are_replays_over_poisoned_outputs(card: Card) -> None:
    clock = clock_of(card, 20e-6, 20e-6)
    clock.rounds(4)
    calls = clock.timed_calls(2)
    assert len(calls) == 2
    # This card's replays compute nothing: what was poisoned stays so.
    assert all(torch.isnan(call.candidate_output).all() for call in calls)
    assert not any(call.inputs_changed for call in calls)


def test_a_side_that_fails_in_its_capture_is_named(card: Card) -> None:
    def refuses(a: torch.Tensor) -> torch.Tensor:
        if card.capturing is not None:
            raise RuntimeError("not while capturing\nand more")
        return a + 1.0

    sides = Sides(refuses, takes(card, 1e-5), lambda: Inputs((torch.randn(256),)))
    with pytest.raises(CaptureError, match=r"the candidate cannot be captured: RuntimeError: not while capturing$"):
        graph.GraphClock(sides).setup()


def test_planted_work_is_once_a_sample(card: Card, monkeypatch: pytest.MonkeyPatch) -> None:
    from perfsuite.analyze import calibration_planted as planted

    monkeypatch.setattr(planted, "spin_cost", lambda: planted.SpinCost(launch=0.0, a_cycle=1 / 2e9))
    sides = Sides(takes(card, 20e-6), takes(card, 20e-6), lambda: Inputs((torch.randn(256),)))
    clock = planted.PlantedClock(sides, seed=1, slowdown=0.02, call_seconds=20e-6)
    clock.setup()
    assert statistics.median(one.speed for one in clock.rounds(10)) == pytest.approx(1 / 1.02, rel=1e-3)
    ours, theirs = clock.replays()
    ours()
    theirs()
