"""The memory of a case with large arguments, at a ten-thousandth of its size, on a card that counts bytes."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from made_up_card import Card, card, takes
from memory_budget import Budget

from perfsuite.case.ask import Ask
from perfsuite.case.comparison import Comparison
from perfsuite.case.run import run_case
from perfsuite.clock.base import Sides
from perfsuite.clock.graph import GraphClock
from perfsuite.outcome import Verdict
from perfsuite.problems import Custom, Decode
from perfsuite.problems.base import Inputs
from perfsuite.problems.tensors import tensors_in
from perfsuite.settings import Settings

__all__ = ["card"]

SCALE = 10_000
GB = 10**9 // SCALE
BOUNDS = """clock.deck.RESERVE_BYTES clock.deck.LINE_BYTES clock.windows.PART_BYTES clock.room.KEPT_BYTES
    clock.cuda.MOST_SPACER guards.fingerprint.TOGETHER_BYTES guards.fingerprint.BLOCK_BYTES guards.poison.MOST_BYTES
    guards.fingerprint.HOST_BYTES oracle.effort.DEAR_BYTES
    problems.redraw.PART problems.float64.twins.SWEEP_BYTES oracle.measures.BLOCK_ELEMENTS problems.exact.BLOCK_BYTES"""


@pytest.fixture(autouse=True)
def small_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """All bounds in bytes as on a card, but for the scale."""
    import importlib

    for place in BOUNDS.split():
        module, _, name = f"perfsuite.{place}".rpartition(".")
        value = getattr(importlib.import_module(module), name)
        small = dict.fromkeys(value, value["cuda"] // SCALE) if isinstance(value, dict) else value // SCALE
        monkeypatch.setattr(f"perfsuite.{place}", small)
    # The beginnings of a mask take as much memory beside a small operand as beside one of gigabytes.
    monkeypatch.setattr("perfsuite.clock.mixed.SPAN", 8)


class OneMemoryAPlace(GraphClock):
    """The graph clock on a made-up card: captures for one place share their results' memory, and replays compute."""

    places: dict[int, Any]

    def _captured(self, side: Any, pieces: Any, place: int, *, nodes: bool) -> Any:
        made = super()._captured(side, pieces, place, nodes=nodes)
        made.memory = self.places.setdefault(place, made.memory)
        return made

    def _enqueue(self, side: Any, sample: int, place: int) -> None:
        super()._enqueue(side, sample, place)
        if side == "candidate" and self._mine is not None:
            for call in range(self.launches):
                (result,) = tensors_in(self._mine.result(call))
                result.copy_(self.sides.candidate(*self._inputs_of(sample, call).args))

    def _release(self) -> None:
        super()._release()
        self.places = {}


def judged(
    problem: Any, kernel: Any, rival: Any, card: Card, bytes_of_card: float, monkeypatch: pytest.MonkeyPatch
) -> tuple[Comparison, Budget]:
    """A case on a card of that size, whose every call takes 3 ms; and the bytes that it took."""
    budget = Budget(bytes_of_card)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (budget.free(), bytes_of_card))
    facts = SimpleNamespace(uuid="none", L2_cache_size=50_000_000 // SCALE, total_memory=bytes_of_card)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: facts)
    # The made-up card replaces torch's events.
    monkeypatch.setattr("perfsuite.guards.watch.strangers", lambda *known: [])

    def opened(sides: Sides, settings: Settings) -> GraphClock:
        clock = OneMemoryAPlace(sides)
        clock.setup()
        return clock

    def timed(function: Any) -> Any:
        def call(*args: Any) -> Any:
            card.work(3e-3)
            return function(*args)

        return call

    ask = Ask(problem, timed(kernel), against=timed(rival), at_least=0.3, settings=Settings(device="cpu"))
    with budget:
        return run_case(ask, open_clock=opened), budget


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize(("argument", "whole", "dtype"), [(7.5, 141, torch.float32), (4, 80, torch.bfloat16)])
def test_an_argument_is_judged_where_the_rival_takes_three_times_its_size(
    argument: float, whole: float, dtype: torch.dtype, card: Card, monkeypatch: pytest.MonkeyPatch, no_collector: None
) -> None:
    x = torch.randn(500, int(argument * GB) // dtype.itemsize // 500).to(dtype)

    def rival(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x * 2.0)

    problem = Custom((x,), against=rival)
    found, budget = judged(problem, lambda x: (x * 2.0).relu_(), rival, card, whole * GB, monkeypatch)
    assert found.verdict is Verdict.MET, found.sentence
    assert (found.rotation, found.warnings) == (2, ())
    # Nothing waits for the collector: only the given argument is left.
    assert budget.live == x.nbytes


def test_a_large_cache_takes_two_sets_and_two_copies(
    card: Card, monkeypatch: pytest.MonkeyPatch, no_collector: None
) -> None:
    problem = Decode(8, 4, 512, 64, kv_heads=4)
    size = 8 * 4 * 512 * 64 * 2 * 2
    sdpa = problem.rival("sdpa")
    found, budget = judged(problem, sdpa, sdpa, card, 16.4 * size, monkeypatch)
    assert found.verdict is Verdict.MET, found.sentence
    assert budget.peak <= 4.1 * size


def test_one_set_is_used_where_two_do_not_fit(card: Card, monkeypatch: pytest.MonkeyPatch, no_collector: None) -> None:
    size = 400_000
    facts = SimpleNamespace(uuid="none", L2_cache_size=5_000, total_memory=10 * size)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: facts)
    with Budget(4.3 * size):  # somebody else has the rest
        clock = OneMemoryAPlace(Sides(takes(card, 3e-3), takes(card, 3e-3), lambda: Inputs((torch.randn(size // 4),))))
        clock.setup()
        evicted: list[str] = []
        monkeypatch.setattr(clock, "_evict", lambda: evicted.append("L2"))
        clock.rounds(3)
        (call,) = clock.timed_calls(1)
        assert torch.equal(call.candidate_output, call.inputs.args[0] + 1.0)
    assert clock.rotation == 1
    assert clock.note is not None
    assert "one set of inputs instead of two" in clock.note
    assert len(evicted) == 2 * 2 * 3  # before each side of a half
