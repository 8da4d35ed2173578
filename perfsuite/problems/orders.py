"""Indices, routes, offsets and masks in another order, so that what follows from them cannot be replayed.

Nobody says which whole numbers an operator allows. Rows that change places keep the range, and what holds within a row.
All tensors with rows of one number change alike, so that a table and its lengths stay together. Of sorted numbers the
steps change places: they stay sorted between the same ends, and offsets keep the lengths that they enclose.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perfsuite.problems.tensors import dense

if TYPE_CHECKING:
    import torch

FEW_ROWS = 4
"""A tensor of fewer rows, such as the two ends of edges, changes along its longest axis."""


@dataclass(frozen=True)
class Move:
    """The change of one tensor of whole numbers or truth values between rounds."""

    axis: int
    """The axis along which places change."""
    steps: bool = False
    """True for sorted numbers, whose steps change places; else rows do."""


def movable(tensors: Sequence[torch.Tensor], fixed: Sequence[int] = ()) -> dict[int, Move]:
    """Places of the tensors of wider integers and of truth values that may change their order -> the way.

    fixed: places that stay, such as the offsets of a nested tensor. A tensor in which no order makes a difference
    stays, such as one of evenly spaced numbers. So do numbers that belong to sorted ones, row by row.
    """
    whole = {place: one for place, one in enumerate(tensors) if _whole(one)}
    rising = {place: one for place, one in whole.items() if _rises(one) and not _truths(one)}
    found: dict[int, Move] = {}
    for place in sorted(whole, key=lambda place: place not in rising):
        one = whole[place]
        if place in fixed or not dense(one):
            continue
        if place in rising:
            move = Move(one.dim() - 1, steps=True) if _steps_may_move(one, place, whole, rising) else None
        else:
            axis = 0 if one.shape[0] >= FEW_ROWS else list(one.shape).index(max(one.shape))
            move = Move(axis) if _rows_may_move(one.shape[axis], rising, found) else None
        if move is not None and _varies(one, move):
            found[place] = move
    return found


def still(tensors: Sequence[torch.Tensor], moves: Mapping[int, Move]) -> list[int]:
    """The places of whole numbers and truth values that stay as they are in all calls."""
    return [place for place, one in enumerate(tensors) if _whole(one) and place not in moves]


def reordered(tensors: Sequence[torch.Tensor], moves: Mapping[int, Move], seed: int) -> dict[int, torch.Tensor]:
    """The tensors at those places in the order of that seed."""
    import torch

    orders: dict[int, torch.Tensor] = {}
    found = {}
    for place, move in moves.items():
        one = tensors[place].detach()
        rows = one.shape[move.axis] - move.steps
        if rows not in orders:
            generator = torch.Generator(one.device).manual_seed(seed)
            orders[rows] = torch.randperm(rows, generator=generator, device=one.device)
        if not move.steps:
            found[place] = one.index_select(move.axis, orders[rows])
            continue
        steps = one.diff(dim=move.axis).index_select(move.axis, orders[rows])
        first = one.narrow(move.axis, 0, 1)
        found[place] = torch.cat([first, first + steps.cumsum(move.axis, dtype=one.dtype)], move.axis)
    return found


def same_numbers(one: torch.Tensor, other: torch.Tensor) -> bool:
    """True if both hold the same numbers, in any order."""
    import torch

    return one.numel() == other.numel() and torch.equal(one.flatten().sort().values, other.flatten().sort().values)


def is_value(tensor: torch.Tensor, move: Move) -> bool:
    """True if numbers that move so may be dealt one by one: neither sorted, nor truth values."""
    return not move.steps and not _truths(tensor)


def _steps_may_move(
    one: torch.Tensor, place: int, whole: Mapping[int, torch.Tensor], rising: Mapping[int, torch.Tensor]
) -> bool:
    """True if the steps of these sorted numbers are free: all sorted ones are alike in number, so that they change
    alike; and they begin with zero, as offsets do, or no others have as many rows: lengths belong to a table."""
    if any(other.shape[-1] != one.shape[-1] for other in rising.values()):
        return False
    if bool((one[..., 0] == 0).all()):
        return True
    return not any(one.shape[-1] in other.shape for number, other in whole.items() if number != place)


def _rows_may_move(rows: int, rising: Mapping[int, torch.Tensor], found: Mapping[int, Move]) -> bool:
    """True if no sorted numbers count these rows, or the steps between them change places alike."""
    for place, other in rising.items():
        if rows == other.shape[-1] or (rows == other.shape[-1] - 1 and place not in found):
            return False
    return True


def _varies(one: torch.Tensor, move: Move) -> bool:
    """True if another order gives other values."""
    compared = one.diff(dim=move.axis) if move.steps else one
    return bool((compared != compared.narrow(move.axis, 0, 1)).any())


def _truths(tensor: torch.Tensor) -> bool:
    import torch

    return tensor.dtype is torch.bool


def _whole(tensor: torch.Tensor) -> bool:
    import torch

    kinds = (torch.int16, torch.int32, torch.int64, torch.bool)
    return tensor.dtype in kinds and tensor.layout is torch.strided and tensor.dim() > 0 and tensor.numel() > 1


def _rises(tensor: torch.Tensor) -> bool:
    return tensor.shape[-1] > 1 and bool((tensor[..., 1:] >= tensor[..., :-1]).all())
