"""Moves every floating-point number by one unit in the last place, to see how far a result follows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfsuite.problems.base import Inputs
from perfsuite.problems.tensors import bits, copy_in_place, map_tensors, memory_of

if TYPE_CHECKING:
    import torch


def nudged(inputs: Inputs, generator: torch.Generator) -> Inputs:
    """Copies of the arguments whose numbers lie one unit in the last place higher or lower, at random.

    Zeros, infinities and NaN stay, and so do integers. The generator is on the arguments' device.
    """
    return map_tensors(inputs, lambda tensor: _nudge(tensor, generator))


def _nudge(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    import torch

    copy = copy_in_place(tensor)
    if not (copy.is_floating_point() or copy.is_complex()) or not copy.numel():
        return copy
    memory = memory_of(copy)  # of an expanded tensor, each number once
    numbers = torch.view_as_real(memory) if memory.is_complex() else memory
    whole = bits(numbers)
    up = torch.randint(2, whole.shape, generator=generator, device=whole.device).bool()
    values = numbers.double()
    magnitude = values.abs()
    # Sign and magnitude are apart in the bits, so the next number away from zero has the next integer.
    up &= magnitude < torch.finfo(numbers.dtype).max
    moves = magnitude.isfinite() & (magnitude > 0)
    step = torch.where(moves, torch.where(up, 1, -1), 0)
    moved = (whole.to(torch.int64) + step).to(whole.dtype).view(numbers.dtype)
    numbers.copy_(moved)
    return copy
