"""Measured ceilings of a card: bytes a second of a large copy and of a large sum, FLOPs a second of a product."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from perfsuite.device import turns

COPY_BYTES = 2**30
READ_BYTES = 2**32
PRODUCT_SIZE = 8192
PRODUCT_DTYPES = ("float16", "bfloat16", "float32", "float8_e4m3fn", "float8_e5m2")
REPEATS = 10
MEMORY_PARTS = 8
"""Copy and sum take at most one of these parts of the card's memory. The copy takes two."""


@cache
def copy_bytes_a_second(device: int) -> float:
    """Bytes read and written per second by a copy of at most COPY_BYTES inside device memory: the best of REPEATS."""
    import torch

    with torch.cuda.device(device):
        source = torch.ones(largest(COPY_BYTES, device), dtype=torch.uint8, device="cuda")
        target = torch.empty_like(source)
        return 2.0 * source.numel() / best_seconds(lambda: target.copy_(source))


@cache
def read_bytes_a_second(device: int) -> float:
    """Bytes read per second by torch.sum over at most READ_BYTES of float32: the best of REPEATS.

    Memory that is only read is up to a few per cent faster than memory that is read and written in turn.
    """
    import torch

    with torch.cuda.device(device):
        values = torch.randn(largest(READ_BYTES, device) // 4, device="cuda")
        return values.numel() * 4.0 / best_seconds(values.sum)


def largest(most: int, device: int) -> int:
    """`most` bytes, or the part of the card's memory that a ceiling may take."""
    import torch

    return min(most, torch.cuda.get_device_properties(device).total_memory // MEMORY_PARTS)


@cache
def product_flops_a_second(device: int, dtype: str = "float16") -> float:
    """FLOPs per second of the library's product of square matrices of PRODUCT_SIZE, normal values: the best of REPEATS.

    dtype: one of PRODUCT_DTYPES. Two matrices of 8-bit floats are multiplied by torch._scaled_mm with fast sums, the
    second one being e4m3, since cuBLASLt has no product of two e5m2.
    """
    import torch

    with torch.cuda.device(device):
        kind = getattr(torch, dtype)
        a, b = (torch.randn(PRODUCT_SIZE, PRODUCT_SIZE, device="cuda").to(kind) for _ in range(2))
        if dtype.startswith("float8"):
            return 2.0 * PRODUCT_SIZE**3 / best_seconds(_scaled(a, b.to(torch.float8_e4m3fn)))
        result = torch.empty_like(a)
        return 2.0 * PRODUCT_SIZE**3 / best_seconds(lambda: torch.mm(a, b, out=result))


def _scaled(a: Any, b: Any) -> Callable[[], Any]:
    """A product of 8-bit floats, both stored along k, with scales of 1."""
    import torch

    one = torch.ones((), device=a.device)
    options: dict[str, Any] = {"scale_a": one, "scale_b": one, "out_dtype": torch.bfloat16, "use_fast_accum": True}
    return lambda: torch._scaled_mm(a, b.T, **options)


def best_seconds(call: Callable[[], Any]) -> float:
    """The shortest of REPEATS calls, between CUDA events, after one call that does not count."""
    import torch

    call()
    found = []
    with turns.timing():
        for _ in range(REPEATS):
            before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            before.record()
            call()
            after.record()
            after.synchronize()
            found.append(before.elapsed_time(after) / 1e3)
    return min(found)
