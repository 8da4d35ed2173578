"""The sets of a rotation. Of hundreds of small ones some are drawn, and the others made of these in a few kernels."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from perfsuite.problems.base import Inputs
from perfsuite.problems.tensors import dense, map_tensors, tensors_in

if TYPE_CHECKING:
    import torch


MOST_DRAWN = 64
"""Sets that are drawn where every operand is dealt by windows."""


def sets_like(
    first: Inputs, make_inputs: Callable[[], Inputs], count: int, secret: random.Random | None
) -> list[Inputs]:
    """The first set and further ones, `count` in all. secret: None if each must be drawn."""
    few = count if secret is None else min(count, MOST_DRAWN)
    drawn = [first] + [make_inputs() for _ in range(few - 1)]
    more = turned(drawn, count - few, secret) if secret is not None and few < count else None
    return drawn + ([make_inputs() for _ in range(count - few)] if more is None else more)


def turned(drawn: Sequence[Inputs], count: int, secret: random.Random) -> list[Inputs] | None:
    """So many further sets, in a few kernels for hundreds of them; None if a tensor is no dense operand of values.

    Each operand has a part of the same operand of a drawn set, from some element on, and behind it a part of another's:
    as windows of a line of values do. Operands of one set come from different sets.
    """
    import torch

    leaves = [list(tensors_in(one)) for one in drawn]
    if not leaves[0] or any(_form(one) != _form(leaves[0]) for one in leaves) or not all(map(_plain, leaves[0])):
        return None
    if len({one.untyped_storage().data_ptr() for one in leaves[0]}) < len(leaves[0]):
        return None
    made: list[list[torch.Tensor]] = []
    draw = random.Random(secret.getrandbits(256))  # the operating system takes a call for each number
    for place, like in enumerate(leaves[0]):
        rows = torch.stack([_bytes_or_values(one[place]) for one in leaves])
        more: list[torch.Tensor] = []
        while len(more) < count:
            cut = 1 + draw.randrange(max(1, like.numel() - 1))
            parts = [_mixed(rows, draw)[:, :cut], _mixed(rows, draw)[:, cut:]]
            more += torch.cat(parts, 1).view(like.dtype).unbind()
        made.append([row.as_strided(like.shape, like.stride(), row.storage_offset()) for row in more[:count]])
    if flat(first := drawn[0]):
        return [Inputs(operands, first.kwargs) for operands in zip(*made, strict=True)]
    found: list[Inputs] = []
    for number in range(count):
        base = number % len(drawn)
        new = {id(old): operand[number] for old, operand in zip(leaves[base], made, strict=True)}
        found.append(map_tensors(drawn[base], lambda tensor, new=new: new[id(tensor)]))  # type: ignore[misc]
    return found


def flat(inputs: Inputs) -> bool:
    """True if the arguments are plain tensors, each another one, and nothing else."""
    import torch

    given = inputs.args
    return not inputs.kwargs and len(set(map(id, given))) == len(given) and all(type(a) is torch.Tensor for a in given)


def _mixed(rows: torch.Tensor, draw: random.Random) -> torch.Tensor:
    """The rows in another order, each from another element on."""
    import torch

    order = torch.tensor(draw.sample(range(len(rows)), len(rows)), device=rows.device)
    return rows[order].roll(draw.randrange(rows.shape[1]), 1)


def _form(tensors: Sequence[torch.Tensor]) -> list[tuple[object, ...]]:
    return [(type(one), one.shape, one.dtype, one.device, _stride(one)) for one in tensors]


def _stride(tensor: torch.Tensor) -> object:
    import torch

    return tensor.stride() if tensor.layout is torch.strided else object()


def _plain(tensor: torch.Tensor) -> bool:
    """True for a dense operand of floating-point, complex or 8-bit values by itself."""
    import torch

    values = tensor.is_floating_point() or tensor.is_complex() or tensor.dtype in (torch.int8, torch.uint8)
    turned_over = tensor.is_conj() or tensor.is_neg() or tensor.requires_grad
    return type(tensor) is torch.Tensor and values and tensor.numel() > 1 and dense(tensor) and not turned_over


def _bytes_or_values(tensor: torch.Tensor) -> torch.Tensor:
    """The elements in the order of their memory; as bytes where a dtype has hardly an operator."""
    import torch

    row = tensor.detach().as_strided((tensor.numel(),), (1,), tensor.storage_offset())
    return row.view(torch.uint8) if row.element_size() == 1 else row
