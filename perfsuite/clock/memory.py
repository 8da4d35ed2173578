"""Memory and random state after a graph's capture: outputs without an owner, generators left in capture mode."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


class _Memory:
    """A span of device memory that others can wrap without owning it."""

    def __init__(self, address: int, size: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (address, False),
            "strides": None,
            "version": 3,
        }


def unheld(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor over the same device memory that does not own it: the allocator may hand the memory out again."""
    import torch

    if tensor.device.type != "cuda" or tensor.numel() == 0:
        return tensor
    reach = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    span = torch.as_tensor(_Memory(tensor.data_ptr(), reach * tensor.element_size()), device=tensor.device)
    return span.view(tensor.dtype).as_strided(tensor.shape, tensor.stride())


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
