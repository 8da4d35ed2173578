"""A card that is none: time passes only by what is enqueued on it. For tests of what works on a card."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from perfsuite.clock import cuda

EVENT_COST = 2.5e-6
GAP = 1.0e-6


class Card:
    """Time passes only by what is enqueued: calls, replays, spins."""

    def __init__(self) -> None:
        self.now = 0.0
        self.capturing: FakeGraph | None = None
        self.replays: list[FakeGraph] = []
        self.idle = True
        self.after_others = 0.0
        """What a replay takes longer right behind anything that is no replay."""
        self.other = False

    def work(self, seconds: float) -> None:
        if self.capturing is not None:
            self.capturing.items.append(seconds)
        else:
            self.now += seconds


class FakeGraph:
    card: Card

    def __init__(self, keep_graph: bool = False) -> None:
        self.items: list[Any] = []
        self.keeps_nodes = keep_graph

    def capture_begin(self, pool: Any = None, capture_error_mode: str = "global") -> None:
        self.card.capturing = self

    def capture_end(self) -> None:
        self.card.capturing = None

    def replay(self) -> None:
        self.card.replays.append(self)
        if self.card.other:
            self.card.now += self.card.after_others
            self.card.other = False
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

    def query(self) -> bool:
        return False  # the host is never late

    def elapsed_time(self, other: FakeEvent) -> float:
        return (other.at - self.at) * 1e3


class FakeStream:
    def synchronize(self) -> None:
        """Nothing runs behind anyone's back."""


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> Card:
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
        "memory_allocated": lambda: 0,
        "empty_cache": lambda: None,
        "synchronize": lambda *_: None,
        "mem_get_info": lambda: (10**11, 10**11),
        "_sleep": lambda cycles: made.work(cycles / 2e9),
    }.items():
        monkeypatch.setattr(torch.cuda, name, value, raising=False)
    for maker in ("zeros", "empty"):
        plain = getattr(torch, maker)
        monkeypatch.setattr(torch, maker, _on_cpu(plain))
    monkeypatch.setattr(cuda, "reset_persisting_l2", lambda: True)
    monkeypatch.setattr(cuda, "change_contexts", lambda device: None)
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
