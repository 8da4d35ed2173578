"""Copies results on the host as they are in memory, without touching them.

A page that somebody has yet to fill is filled when it is touched: by a handler of page faults, or of signals. Then the
work is done by whoever looks, behind the time that was taken. The system's own read of a process's memory
(proc(5), /proc/PID/mem) asks no such handler.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from perfsuite.outcome import Reason
from perfsuite.problems.tensors import keep, map_tensors, own_attributes, span, turned, turns

if TYPE_CHECKING:
    import torch

MEMORY = "/proc/self/mem"


class AbsentError(RuntimeError):
    """A result was not in memory when its time had ended."""

    reason = Reason.TAMPERED

    def __init__(self) -> None:
        super().__init__("the result of a timed call is not in the memory of its process when its time ends")


def as_they_are(value: Any) -> Any:
    """A nest with copies of its plain tensors; others are not copied. AbsentError if one is not in memory."""
    import torch

    try:
        memory = os.open(MEMORY, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:  # not on Linux
        return keep(value)

    def copy(tensor: torch.Tensor) -> torch.Tensor:
        plain = type(tensor) is torch.Tensor and not own_attributes(tensor) and tensor.layout is torch.strided
        if not plain or not tensor.is_cpu or tensor.is_quantized or not tensor.numel():
            return keep(tensor)
        found = read_memory(memory, tensor.data_ptr(), span(tensor) * tensor.element_size())
        same = torch.frombuffer(found, dtype=torch.uint8).view(tensor.dtype).as_strided(tensor.shape, tensor.stride())
        return turned(same, turns(tensor))

    try:
        return map_tensors(value, copy)
    finally:
        os.close(memory)


def read_memory(memory: int, address: int, size: int) -> bytearray:
    """Bytes of a process, by the descriptor of its memory. AbsentError where it has none, or has yet to fill them."""
    found = bytearray(size)
    done = 0
    while done < size:
        try:
            count = os.preadv(memory, [memoryview(found)[done:]], address + done)
        except (OSError, OverflowError):
            count = 0
        if count == 0:
            raise AbsentError
        done += count
    return found
