"""Sets that lie behind one another are handed over as one: to their places, with their values, in one short message."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch

from perfsuite.clock.deck import Deck
from perfsuite.isolate.card_side import CardSide
from perfsuite.isolate.memory import ALIGNMENT, Arena, Opened, Repeated
from perfsuite.problems.base import Inputs
from perfsuite.problems.tensors import same_bits, tensors_in

GENERATOR = torch.Generator().manual_seed(0)


class There:
    """The other process: it opens what it is handed."""

    def __init__(self) -> None:
        self.sets: list[Inputs] = []
        self.sent: Any = None
        self.bytes = 0

    def arena(self, nest: Any, stacks: int = 0) -> Arena:
        return Arena(nest, on_card=False, stacks=stacks)

    def ask(self, request: dict[str, Any], arena: Arena) -> dict[str, Any]:
        body = pickle.dumps(request["sets"])
        self.bytes, self.sent = len(body), request["sets"]
        opened = Opened([os.dup(arena.descriptors[0])], None)
        self.sets = [Inputs(*one) for one in opened.rebuild(pickle.loads(body))]
        return {}


def two_operands() -> Inputs:
    values = torch.randn(2, 12, 10, generator=GENERATOR)
    return Inputs((values[0].clone().t(), 3), {"b": [values[1].clone(), None]})


def with_an_index() -> Inputs:
    return Inputs((torch.randn(40, generator=GENERATOR), torch.arange(40)), {})


def with_a_number() -> Inputs:
    return Inputs((torch.randn(40, generator=GENERATOR), float(torch.rand((), generator=GENERATOR))), {})


def twice() -> Inputs:
    values = torch.randn(40, generator=GENERATOR)
    return Inputs((values, values), {})


@pytest.mark.parametrize(
    ("make", "one"), [(two_operands, True), (with_an_index, False), (with_a_number, False), (twice, None)]
)
def test_the_other_process_has_the_same_sets_in_the_same_memory(make: Callable[[], Inputs], one: bool | None) -> None:
    deck = Deck(make, make(), 150, "elements", stacked=True)
    there = There()
    side = CardSide(there, None)  # type: ignore[arg-type]
    placed = side.hand(deck.sets)
    for mine, copy, other in zip(deck.sets, placed, there.sets, strict=True):
        assert same_bits(mine, copy)
        assert same_bits(mine, other)
        assert [t.stride() for t in tensors_in(mine)] == [t.stride() for t in tensors_in(other)]
    for tensor in tensors_in(placed):
        tensor.add_(1)
    for copy, other in zip(placed, there.sets, strict=True):
        assert same_bits(copy, other)
    first = [next(iter(tensors_in(inputs))).data_ptr() for inputs in placed]
    assert len(set(first)) == 150
    assert {(place - first[0]) % ALIGNMENT for place in first} == {0}
    if one is not None:
        assert isinstance(there.sent, Repeated) is one
    assert there.bytes < 1500 or not one
    side.close()


def test_sets_that_lie_apart_are_handed_over_one_by_one() -> None:
    sets = [two_operands() for _ in range(20)]
    there = There()
    side = CardSide(there, None)  # type: ignore[arg-type]
    side.hand(sets)
    assert not isinstance(there.sent, Repeated)
    assert all(same_bits(mine, other) for mine, other in zip(sets, there.sets, strict=True))
    side.close()
