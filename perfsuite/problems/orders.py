"""Indices, routes and block tables in another order, so that what follows from them cannot be replayed.

Nobody says which whole numbers an operator allows. Rows that change places keep the range, and what holds within a row.
All tensors with rows of one number change alike, so that a table and its lengths stay together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from perfsuite.problems.tensors import dense

if TYPE_CHECKING:
    import torch

FEW_ROWS = 4
"""A tensor of fewer rows, such as the two ends of edges, changes along its longest axis."""


def movable(tensors: Sequence[torch.Tensor]) -> dict[int, int]:
    """Places of the tensors of wider integers that may change their order -> the axis along which they do.

    Sorted ones stay, since they may be offsets; so do those of as many rows as there are offsets.
    """
    offsets = {one.numel() - apart for one in tensors if _wide(one) and _rises(one) for apart in (0, 1)}
    found = {}
    for place, one in enumerate(tensors):
        if not _wide(one) or _rises(one) or not dense(one):
            continue
        axis = 0 if one.shape[0] >= FEW_ROWS else list(one.shape).index(max(one.shape))
        if one.shape[axis] not in offsets:
            found[place] = axis
    return found


def reordered(tensors: Sequence[torch.Tensor], axes: Mapping[int, int], seed: int) -> dict[int, torch.Tensor]:
    """The tensors at those places in the order of that seed."""
    import torch

    orders: dict[int, torch.Tensor] = {}
    found = {}
    for place, axis in axes.items():
        one = tensors[place].detach()
        rows = one.shape[axis]
        if rows not in orders:
            generator = torch.Generator(one.device).manual_seed(seed)
            orders[rows] = torch.randperm(rows, generator=generator, device=one.device)
        found[place] = one.index_select(axis, orders[rows])
    return found


def same_numbers(one: torch.Tensor, other: torch.Tensor) -> bool:
    """True if both hold the same numbers, in any order."""
    import torch

    return one.numel() == other.numel() and torch.equal(one.flatten().sort().values, other.flatten().sort().values)


def _wide(tensor: torch.Tensor) -> bool:
    import torch

    kinds = (torch.int16, torch.int32, torch.int64)
    return tensor.dtype in kinds and tensor.layout is torch.strided and tensor.dim() > 0 and tensor.numel() > 1


def _rises(tensor: torch.Tensor) -> bool:
    return bool((tensor[..., 1:] >= tensor[..., :-1]).all())
