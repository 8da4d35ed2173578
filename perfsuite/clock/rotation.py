"""Sets of inputs that are used in turn: enough of them that each has left the cache when its turn comes again."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from perfsuite.problems.base import Inputs
from perfsuite.problems.tensors import tensors_in

if TYPE_CHECKING:
    import torch

CACHE_MULTIPLE = 3
MOST_SETS = 1024
"""Most sets of a rotation. Tiny inputs would need tens of thousands of sets, and as many captured launches."""


def bytes_in(value: Any) -> int:
    """Bytes of the tensors in `value`."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors_in(value))


def sets_needed(bytes_a_set: int, cache_bytes: int) -> int:
    """Sets whose inputs together cover CACHE_MULTIPLE caches; at least 2, at most MOST_SETS.

    One more than the quotient: all other sets lie between two uses of a set.
    """
    if bytes_a_set <= 0:
        return 2
    return min(MOST_SETS, 1 + max(1, math.ceil(CACHE_MULTIPLE * cache_bytes / bytes_a_set)))


def refill(sets: list[Inputs], make_inputs: Callable[[], Inputs]) -> None:
    """Overwrite every tensor of `sets` in place with values from fresh inputs of the same shapes."""
    for inputs in sets:
        for old, new in zip(tensors_in(inputs), tensors_in(make_inputs()), strict=True):
            _without_repeats(old).copy_(_without_repeats(new))


def _without_repeats(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor with every broadcast axis cut to one element, since elements that share memory cannot be written."""
    for axis, stride in enumerate(tensor.stride()):
        if stride == 0 and tensor.shape[axis] > 1:
            tensor = tensor.narrow(axis, 0, 1)
    return tensor


def share_memory(one: Any, other: Any) -> bool:
    """True if a tensor in `one` lies in the same allocation as one in `other`."""
    storages = {tensor.untyped_storage().data_ptr() for tensor in tensors_in(one) if tensor.numel()}
    return any(tensor.untyped_storage().data_ptr() in storages for tensor in tensors_in(other) if tensor.numel())
