"""Memory and random state after a graph's capture: outputs without an owner, generators left in capture mode."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perfsuite.problems.tensors import PLAIN, Turns, turned, turns

if TYPE_CHECKING:
    import torch


class _Memory:
    """A span of device memory that others can wrap without owning it. A tensor over it keeps this object."""

    def __init__(self, address: int, size: int, keeps: object) -> None:
        self._keeps = keeps
        self.__cuda_array_interface__ = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (address, False),
            "strides": None,
            "version": 3,
        }


@dataclass(slots=True)  # not frozen: to make one of thousands would take twice as long
class Span:
    """The device memory of a tensor, without the tensor: the allocator may hand it out again."""

    address: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    kind: torch.dtype
    device: torch.device
    owner: torch.Tensor | None = None
    """A tensor that is on no GPU keeps its memory."""
    keeps: object = None
    """An object that must live as long as a tensor over the memory."""
    turns: Turns = PLAIN
    """The tensor's marks."""

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Span:
        """The memory of that tensor."""
        owner = None if tensor.is_cuda else tensor
        place, form = tensor.data_ptr(), (tuple(tensor.shape), tensor.stride(), tensor.dtype, tensor.device)
        return cls(place, *form, owner, turns=turns(tensor))

    def tensor(self) -> torch.Tensor:
        """A tensor over the memory that does not own it."""
        import torch

        if self.owner is not None:
            return self.owner
        if not math.prod(self.shape):
            return torch.empty(self.shape, dtype=self.kind, device=self.device)
        reach = 1 + sum((size - 1) * stride for size, stride in zip(self.shape, self.stride, strict=True))
        span = torch.as_tensor(_Memory(self.address, reach * self.kind.itemsize, self.keeps), device=self.device)
        return turned(span.view(self.kind).as_strided(self.shape, self.stride), self.turns)


def free_default_generator(device: int) -> None:
    """Make the device's default generator usable after a failed capture, which leaves it in capture mode.

    Its sequence starts anew from its seed.
    """
    import torch

    if device >= len(torch.cuda.default_generators):
        return
    generator = torch.cuda.default_generators[device]
    fresh = torch.Generator(device=generator.device)
    fresh.manual_seed(generator.initial_seed())
    generator.graphsafe_set_state(fresh.graphsafe_get_state())
