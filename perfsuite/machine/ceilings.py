"""What a card reaches in practice: bytes a second of a large copy and of a large sum, FLOPs a second of a product."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

COPY_BYTES = 2**30
READ_BYTES = 2**32
PRODUCT_SIZE = 8192
REPEATS = 10
FEWER_BYTES = 8
"""Copy and sum take at most one part in so many of the card's memory, the copy twice."""


@cache
def copy_bytes_a_second(device: int) -> float:
    """Bytes read and written a second by a copy inside device memory: the best of REPEATS, each of about 1 GiB."""
    import torch

    size = min(COPY_BYTES, torch.cuda.get_device_properties(device).total_memory // FEWER_BYTES)
    with torch.cuda.device(device):
        source = torch.empty(size, dtype=torch.uint8, device="cuda").fill_(1)
        target = torch.empty_like(source)
        return 2.0 * size / _best_seconds(lambda: target.copy_(source))


@cache
def read_bytes_a_second(device: int) -> float:
    """Bytes read a second by torch.sum over float32 in device memory: the best of REPEATS, each of about 4 GiB.

    Memory that is only read is up to a few per cent faster than memory that is read and written in turn.
    """
    import torch

    size = min(READ_BYTES, torch.cuda.get_device_properties(device).total_memory // FEWER_BYTES)
    with torch.cuda.device(device):
        values = torch.randn(size // 4, device="cuda")
        return values.numel() * 4.0 / _best_seconds(values.sum)


@cache
def product_flops_a_second(device: int, dtype: str = "float16") -> float:
    """FLOPs a second of torch.mm on square matrices of PRODUCT_SIZE, normal values: the best of REPEATS."""
    import torch

    with torch.cuda.device(device):
        kind = getattr(torch, dtype)
        a, b = (torch.randn(PRODUCT_SIZE, PRODUCT_SIZE, device="cuda").to(kind) for _ in range(2))
        result = torch.empty_like(a)
        return 2.0 * PRODUCT_SIZE**3 / _best_seconds(lambda: torch.mm(a, b, out=result))


def _best_seconds(call: Callable[[], Any]) -> float:
    import torch

    call()
    found = []
    for _ in range(REPEATS):
        before, after = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        before.record()
        call()
        after.record()
        after.synchronize()
        found.append(before.elapsed_time(after) / 1e3)
    return min(found)
