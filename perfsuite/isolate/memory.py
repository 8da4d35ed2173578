"""Tensors shared by two processes: anonymous shared memory on the host, handles of the driver on a GPU."""

from __future__ import annotations

import fcntl
import mmap
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perfsuite.problems.nests import nest_of
from perfsuite.problems.tensors import map_tensors, tensors_in

if TYPE_CHECKING:
    import torch

ALIGNMENT = 256


def sealed(size: int) -> int:
    """The descriptor of new memory whose size nobody can change.

    If a worker could make the file shorter, the parent's next access would kill the parent.
    """
    descriptor = os.memfd_create("perfsuite", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, size)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    return descriptor


@dataclass(frozen=True)
class HostPlace:
    """The place of a host tensor in the shared memory: offset in bytes, strides in elements."""

    offset: int
    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]


@dataclass(frozen=True)
class CudaPlace:
    """The arguments from which torch opens a GPU tensor in the other process."""

    arguments: tuple[Any, ...]


class Arena:
    """Shared memory for the host tensors of nests of values (tuples, lists and dicts). `close` frees it."""

    def __init__(self, size: int, descriptor: int | None = None) -> None:
        # Whole pages: after each place there is a whole number of elements of any dtype.
        self.descriptor = sealed((size // mmap.PAGESIZE + 1) * mmap.PAGESIZE) if descriptor is None else descriptor
        self._map = mmap.mmap(self.descriptor, 0)
        self._used = 0

    @staticmethod
    def room(nest: Any) -> int:
        """Bytes that the host tensors of a nest need in an arena."""
        tensors = [tensor for tensor in tensors_in(nest) if tensor.device.type == "cpu"]
        return sum(_span(tensor) * tensor.element_size() + ALIGNMENT for tensor in tensors)

    def place(self, tensor: torch.Tensor) -> torch.Tensor:
        """A copy of `tensor`, of the same shape and strides, in the arena; or itself if it is on a GPU."""
        if tensor.device.type != "cpu":
            return tensor
        where = _place(tensor, self._used)
        self._used += -(-_span(tensor) * tensor.element_size() // ALIGNMENT) * ALIGNMENT
        placed = self.at(where)
        if tensor.numel():
            copy_values(tensor, placed)
        return placed

    def at(self, where: HostPlace) -> torch.Tensor:
        """The tensor at that place."""
        import torch

        whole = torch.frombuffer(self._map, dtype=getattr(torch, where.dtype), offset=where.offset)
        return whole.as_strided(where.shape, where.stride)

    def describe(self, nest: Any) -> Any:
        """The nest with every tensor replaced by its place; host tensors must lie in this arena."""
        import torch

        start = torch.frombuffer(self._map, dtype=torch.uint8).data_ptr()

        def where(tensor: torch.Tensor) -> Any:
            if tensor.device.type == "cpu":
                return _place(tensor, tensor.data_ptr() - start if tensor.numel() else 0)
            from torch.multiprocessing.reductions import reduce_tensor

            return CudaPlace(reduce_tensor(tensor)[1])

        return map_tensors(nest, where)

    def close(self) -> None:
        """Free the memory; nobody may use its tensors afterwards."""
        os.close(self.descriptor)


def copy_values(tensor: torch.Tensor, into: torch.Tensor) -> None:
    """Copy the values of a tensor into one of the same shape and strides."""
    into.copy_(tensor) if 0 not in tensor.stride() else _once(into).copy_(_once(tensor))


def rebuild(nest: Any, arena: Arena | None) -> Any:
    """The nest that `describe` described, in the other process."""
    if isinstance(nest, HostPlace):
        assert arena is not None
        return arena.at(nest)
    if isinstance(nest, CudaPlace):
        from torch.multiprocessing.reductions import rebuild_cuda_tensor

        return rebuild_cuda_tensor(*nest.arguments)
    found = nest_of(nest)
    return nest if found is None else found.rebuild([rebuild(part, arena) for _, part in found.parts])


def _place(tensor: torch.Tensor, offset: int) -> HostPlace:
    return HostPlace(offset, str(tensor.dtype)[6:], tuple(tensor.shape), tuple(tensor.stride()))


def _span(tensor: torch.Tensor) -> int:
    """The number of elements from a tensor's first to its last in memory."""
    if not tensor.numel():
        return 0
    return 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))


def _once(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor with every broadcast axis cut to one element."""
    for axis, stride in enumerate(tensor.stride()):
        if stride == 0 and tensor.shape[axis] > 1:
            tensor = tensor.narrow(axis, 0, 1)
    return tensor
