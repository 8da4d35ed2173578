"""Sizes of last-level caches, and the reset of lines that a kernel may have pinned in the L2."""

from __future__ import annotations

import ctypes
from functools import lru_cache
from pathlib import Path

CPU_CACHE_BYTES_UNKNOWN = 32 * 2**20
"""The size if /sys does not have it."""
_CU_LIMIT_PERSISTING_L2_CACHE_SIZE = 0x06


def l2_bytes(device: int) -> int:
    """L2 size of a CUDA device, in bytes."""
    import torch

    return int(torch.cuda.get_device_properties(device).L2_cache_size)


@lru_cache(maxsize=1)
def cpu_cache_bytes() -> int:
    """Size of the largest cache of the first CPU, in bytes."""
    units, sizes = {"K": 2**10, "M": 2**20}, []
    for file in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = file.read_text().strip()
        number, unit = text[:-1], text[-1:]
        if number.isdigit() and unit in units:
            sizes.append(int(number) * units[unit])
    return max(sizes, default=CPU_CACHE_BYTES_UNKNOWN)


def reset_persisting_l2() -> bool:
    """Reset persisting L2 lines and their carve-out in the current context; True if the driver did so.

    A carve-out would keep inputs in the L2 through a rotation of any length.
    """
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        reset = driver.cuCtxResetPersistingL2Cache
        limit = driver.cuCtxSetLimit
    except (OSError, AttributeError):
        return False
    limit.argtypes = [ctypes.c_int, ctypes.c_size_t]
    return reset() == 0 and limit(_CU_LIMIT_PERSISTING_L2_CACHE_SIZE, 0) == 0
