"""Memory of a card that two processes map: the driver's virtual memory, handed over as a file descriptor.

A descriptor crosses every border of a sandbox, where the older handles of cudaIpcGetMemHandle need one namespace of
processes. It also shares nothing but this allocation, where a handle shares a whole segment of torch's allocator.
The calls are in the CUDA driver API's chapter "Virtual Memory Management".
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import weakref
from functools import cache
from typing import TYPE_CHECKING, Any

from perfsuite.clock.memory import Span

if TYPE_CHECKING:
    import torch

LIBRARY = "libcuda.so.1"
PINNED, DEVICE, FILE_DESCRIPTOR, READ_AND_WRITE = 1, 1, 1, 3
"""CU_MEM_ALLOCATION_TYPE_PINNED, CU_MEM_LOCATION_TYPE_DEVICE, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
CU_MEM_ACCESS_FLAGS_PROT_READWRITE."""

OUT_OF_MEMORY = 2
"""CUDA_ERROR_OUT_OF_MEMORY."""


class Location(ctypes.Structure):
    """CUmemLocation."""

    _fields_ = (("type", ctypes.c_int), ("id", ctypes.c_int))


class Properties(ctypes.Structure):
    """CUmemAllocationProp; the last 8 bytes are its flags, all 0."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("requestedHandleTypes", ctypes.c_int),
        ("location", Location),
        ("win32HandleMetaData", ctypes.c_void_p),
        ("allocFlags", ctypes.c_ubyte * 8),
    )


class Access(ctypes.Structure):
    """CUmemAccessDesc."""

    _fields_ = (("location", Location), ("flags", ctypes.c_int))


class CardMemoryError(RuntimeError):
    """The driver does not share memory this way; the message has the call and its error."""


class CardMemory:
    """One allocation, mapped here. It is freed when the last tensor in it has gone, in every process."""

    def __init__(self, size: int, device: int, descriptor: int | None = None) -> None:
        """size: bytes. descriptor: of another process's allocation of that size; None makes a new one.

        Raises CardMemoryError and torch.OutOfMemoryError.
        """
        import torch

        torch.cuda.synchronize(device)  # a context, which mapping needs
        self.device = device
        location = Location(DEVICE, device)
        wanted = Properties(PINNED, FILE_DESCRIPTOR, location)
        unit, handle, address = ctypes.c_size_t(), ctypes.c_uint64(), ctypes.c_uint64()
        call_driver("cuMemGetAllocationGranularity", ctypes.byref(unit), ctypes.byref(wanted), 0)
        self.size = -(-max(size, 1) // unit.value) * unit.value
        whole = ctypes.c_size_t(self.size)
        if descriptor is None:
            create = "cuMemCreate", ctypes.byref(handle), whole, ctypes.byref(wanted), ctypes.c_uint64()
            try:
                call_driver(*create)
            except torch.OutOfMemoryError:
                torch.cuda.empty_cache()  # what torch's allocator keeps
                call_driver(*create)
        else:
            where = ctypes.c_void_p(descriptor)
            call_driver("cuMemImportFromShareableHandle", ctypes.byref(handle), where, FILE_DESCRIPTOR)
        with contextlib.ExitStack() as undo:
            undo.callback(_release, "cuMemRelease", handle)
            zero = ctypes.c_size_t()
            call_driver("cuMemAddressReserve", ctypes.byref(address), whole, zero, ctypes.c_uint64(), ctypes.c_uint64())
            undo.callback(_release, "cuMemAddressFree", address, whole)
            call_driver("cuMemMap", address, whole, zero, handle, ctypes.c_uint64())
            undo.callback(_release, "cuMemUnmap", address, whole)
            access = Access(location, READ_AND_WRITE)
            call_driver("cuMemSetAccess", address, whole, ctypes.byref(access), ctypes.c_size_t(1))
            if descriptor is None:
                made, flags = ctypes.c_int(), ctypes.c_uint64()
                call_driver("cuMemExportToShareableHandle", ctypes.byref(made), handle, FILE_DESCRIPTOR, flags)
                descriptor = made.value
            self.descriptor = descriptor
            undo.callback(os.close, descriptor)
            weakref.finalize(self, undo.pop_all().close)
        self.address = address.value

    def tensor(self, offset: int, dtype: torch.dtype, shape: tuple[int, ...], stride: tuple[int, ...]) -> torch.Tensor:
        """A tensor in it, which keeps it. offset: bytes. shape, stride: elements."""
        import torch

        device = torch.device("cuda", self.device)
        return Span(self.address + offset, shape, stride, dtype, device, keeps=self).tensor()

    def offset(self, tensor: torch.Tensor) -> int | None:
        """The offset of a tensor in it, in bytes; None if the tensor lies elsewhere."""
        apart = tensor.data_ptr() - self.address
        return apart if tensor.is_cuda and tensor.numel() and 0 <= apart < self.size else None


def _release(name: str, *arguments: Any) -> None:
    with contextlib.suppress(CardMemoryError):
        call_driver(name, *arguments)


def call_driver(name: str, *arguments: Any) -> None:
    """Call a function of the driver. Raises CardMemoryError or torch.OutOfMemoryError unless it succeeds."""
    try:
        code = _function(LIBRARY, name)(*arguments)
    except (OSError, AttributeError) as error:
        raise CardMemoryError(f"{name}: {error}") from None
    if code == OUT_OF_MEMORY:
        from torch import OutOfMemoryError

        raise OutOfMemoryError(f"{name}: the card has too little free memory")
    if code != 0:
        raise CardMemoryError(f"{name} failed with error {code} of the driver")


@cache
def _function(library: str, name: str) -> Any:
    """A function of a library. To look one up takes longer than the call, and a sample makes five."""
    return getattr(ctypes.CDLL(library), name)
