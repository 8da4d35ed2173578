"""Walking over nested arguments and results, and comparing tensors bit by bit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from perfsuite.problems.base import Inputs

if TYPE_CHECKING:
    import torch


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """Every tensor in nested tuples, lists, dictionaries and Inputs, in order."""
    import torch

    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Inputs):
        yield from tensors_in((value.args, dict(value.kwargs)))
    elif isinstance(value, tuple | list | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from tensors_in(item)


def map_tensors(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """The same nest with `change(tensor)` in place of every tensor."""
    import torch

    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, Inputs):
        return Inputs(map_tensors(tuple(value.args), change), map_tensors(dict(value.kwargs), change))
    if type(value) in (tuple, list):
        return type(value)(map_tensors(item, change) for item in value)
    if type(value) is dict:
        return {name: map_tensors(item, change) for name, item in value.items()}
    return value


def copy_in_place(tensor: torch.Tensor) -> torch.Tensor:
    """A copy of the same shape and strides at another address (dense where the strides overlap)."""
    import torch

    if 0 in tensor.stride():
        return tensor.detach().clone(memory_format=torch.contiguous_format)
    copy = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)
    return copy.copy_(tensor.detach())


def keep(value: Any) -> Any:
    """A nest with copies of its plain tensors. Other tensors are not copied; the oracle refuses them.

    Copying a subclass of Tensor would run its code, and the work may be done there.
    """
    import torch

    def copy(tensor: torch.Tensor) -> torch.Tensor:
        plain = type(tensor) is torch.Tensor and not vars(tensor) and tensor.layout is torch.strided
        return copy_in_place(tensor) if plain else tensor

    return map_tensors(value, copy)


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor's bytes as integers, so that a NaN equals itself and -0 differs from 0."""
    import torch

    tensor = tensor.detach().resolve_conj().resolve_neg()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    integers = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return tensor.view(integers[tensor.element_size()])


def same_bits(one: Any, other: Any) -> bool:
    """True if two nests hold the same tensors bit by bit, shapes and dtypes included."""
    import torch

    ones, others = list(tensors_in(one)), list(tensors_in(other))
    return len(ones) == len(others) and all(
        a.shape == b.shape and a.dtype == b.dtype and torch.equal(bits(a), bits(b))
        for a, b in zip(ones, others, strict=True)
    )
