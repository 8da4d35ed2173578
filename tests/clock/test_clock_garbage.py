"""Collection of garbage around a case: no full one within it, and cycles with tensors are freed as they come."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import torch
from made_up_card import Card, card

from perfsuite.case.ask import Ask
from perfsuite.case.run import run_case
from perfsuite.clock import cuda
from perfsuite.clock.base import Sides
from perfsuite.clock.garbage import collect_young, no_full_collection
from perfsuite.clock.graph import GraphClock
from perfsuite.problems import Gemm
from perfsuite.settings import Settings

assert card  # a fixture


@pytest.fixture
def collected() -> Iterator[list[int]]:
    """The generations that were collected."""
    found: list[int] = []

    def note(phase: str, info: dict[str, Any]) -> None:
        if phase == "stop":
            found.append(info["generation"])

    gc.callbacks.append(note)
    yield found
    gc.callbacks.remove(note)


def test_cases_cause_no_full_collection(card: Card, collected: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """With a thousand sets and thousands of results, every third or fourth case caused one."""
    monkeypatch.setattr(cuda, "l2_bytes", lambda _: 1 << 20)

    def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        card.work(2e-6)
        return a @ b

    inputs = partial(Gemm(16, 16, 16, "float32").inputs, torch.Generator().manual_seed(1))
    gc.collect()
    collected.clear()
    for _ in range(8):
        with no_full_collection():
            clock = GraphClock(Sides(product, lambda a, b: product(a, b), inputs))
            clock.setup()
            assert len(clock.rounds(4)) == 4
            assert clock.rotation > 500
            clock.close()
    assert collected
    assert 2 not in collected


def test_nothing_is_collected_while_a_case_runs_and_what_was_is_again_behind_it() -> None:
    seen: list[bool] = []

    def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        seen.append(gc.isenabled())
        return a @ b

    run_case(Ask(Gemm(16, 16, 16, "float32"), product, settings=Settings(device="cpu")))
    assert seen
    assert not any(seen)
    assert gc.isenabled()


class Loop:
    """An object with a tensor that refers to itself."""

    def __init__(self) -> None:
        self.me, self.tensor = self, torch.zeros(4)


def test_what_a_side_leaves_in_a_cycle_is_freed_within_the_case() -> None:
    with no_full_collection():
        there = sum(type(one) is Loop for one in gc.get_objects())
        Loop()
        assert sum(type(one) is Loop for one in gc.get_objects()) == there + 1
        collect_young()
        assert sum(type(one) is Loop for one in gc.get_objects()) == there
    assert gc.isenabled()
    gc.disable()
    with no_full_collection():  # the user's own choice stays
        assert not gc.isenabled()
    assert not gc.isenabled()
    gc.enable()


def test_the_checks_free_what_each_call_leaves_in_a_cycle() -> None:
    """Else a case of large tensors would run out of memory that its rival does not need."""
    most = 0

    def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        nonlocal most
        most = max(most, sum(type(one) is Loop for one in gc.get_objects()))
        Loop()
        return a @ b

    run_case(Ask(Gemm(16, 16, 16, "float32"), product, settings=Settings(device="cpu")))
    assert most == 0
