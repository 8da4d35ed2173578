"""Values that the processes of both sides get right before their orders.

A worker goes on behind its receipt until it is stopped, which is late on a busy machine, and it may do the work of
several samples in one. Both would make most samples short. But nobody works on values that are not there yet.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from perfsuite.clock.deck import Deck
from perfsuite.clock.rounds import Side
from perfsuite.isolate.memory import copy_values
from perfsuite.problems.base import Inputs
from perfsuite.problems.tensors import memory_of, tensors_in

if TYPE_CHECKING:
    import torch


class Late:
    """Copies values from a deck, whose sets no process sees, to the sets of the sides, with all processes stopped."""

    def __init__(self, deck: Deck, sets: Mapping[Side, Sequence[Inputs]]) -> None:
        """sets: those of each side. They have the form of the deck's sets."""
        self._places = deck.dealt
        self._from = [_memory(one, self._places) for one in deck.sets]
        self._into = {side: [_memory(one, self._places) for one in given] for side, given in sets.items()}
        tensors = [one for given in (self._from, *self._into.values()) for of_set in given for one in of_set]
        self._plain = not any(one.is_conj() or one.is_neg() for one in tensors)
        self._secret = random.SystemRandom()

    def hand_out(self, places: Sequence[tuple[int, int]]) -> None:
        """Give the sets in `places`, (first, number) each, their values, for all sides."""
        # The set that is written last lies in the nearest cache.
        for side in self._secret.sample(list(self._into), len(self._into)):
            self.copy(side, places)

    def copy(self, side: Side, places: Sequence[tuple[int, int]], only: Collection[int] | None = None) -> None:
        """Give that side's sets in `places` their values. only: the tensors, by their places in a set."""
        import torch

        chosen = [at for at, place in enumerate(self._places) if only is None or place in only]
        sets = [number for start, count in places for number in range(start, start + count)]
        into = [self._into[side][number][at] for number in sets for at in chosen]
        values = [self._from[number][at] for number in sets for at in chosen]
        if into and self._plain:
            torch._foreach_copy_(into, values)
            return
        for old, new in zip(into, values, strict=True):
            copy_values(new, old)


def _memory(inputs: Inputs, places: Sequence[int]) -> list[torch.Tensor]:
    """The memory of the tensors at these places."""
    tensors = list(tensors_in(inputs))
    return [memory_of(tensors[place].detach()) for place in places]
