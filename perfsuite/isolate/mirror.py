"""Copies the values of one side's sets into those of the other side."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from perfsuite.clock.windows import stacked
from perfsuite.problems.base import Inputs
from perfsuite.problems.tensors import memory_of, tensors_in


class Mirror:
    """Sets, and others of the same forms elsewhere, which get their values."""

    def __init__(self, sets: Sequence[Inputs] = (), others: Sequence[Inputs] = ()) -> None:
        self._operands = [_pair(*both) for both in zip(_operands(others), _operands(sets), strict=True)]
        """By operand, of the others and of the sets: a matrix with a row for each set, or the tensors of each."""

    def copy(self, parts: Iterable[tuple[int, int]]) -> None:
        """Copy the values of the sets in `parts`, (first, number of sets) each, on the current stream."""
        import torch

        into: list[torch.Tensor] = []
        values: list[torch.Tensor] = []
        for start, count in parts:
            for others, own in self._operands:
                if isinstance(others, torch.Tensor):
                    others[start : start + count].copy_(own[start : start + count])
                else:
                    into += others[start : start + count]
                    values += own[start : start + count]
        if into:
            torch._foreach_copy_(into, values)


def _operands(sets: Sequence[Inputs]) -> list[tuple[Any, ...]]:
    """The memory of the tensors of all sets, by their places in a set."""
    return list(zip(*(map(_memory, tensors_in(inputs)) for inputs in sets), strict=True))


def _memory(tensor: Any) -> Any:
    return memory_of(tensor.detach() if tensor.requires_grad else tensor)


def _pair(*both: Sequence[Any]) -> tuple[Any, Any]:
    """Both as matrices, which take one copy; as they are, if one lies otherwise."""
    others, own = map(stacked, both)
    return (list(both[0]), list(both[1])) if others is None or own is None else (others, own)
