"""The memory of this process as bytes.

Dozens of small copies come between two samples on the host. Each takes a third of the time of a call of torch, or of
ctypes, if it is an assignment to a slice.
"""

from __future__ import annotations

import ctypes
from collections.abc import Collection
from functools import lru_cache

FIRST, BEHIND = 1 << 12, 1 << 48
"""The first byte of the view, and the one behind its last: all that a process of 64 bits is given by Linux unasked."""


@lru_cache(maxsize=1)
def host_memory() -> memoryview:
    """All bytes that this process may address, from FIRST on. To read or write where nothing lies would end it."""
    return memoryview((ctypes.c_ubyte * (BEHIND - FIRST)).from_address(FIRST)).cast("B")


def in_view(places: Collection[int], size: int) -> bool:
    """True if that number of bytes from each of these addresses on are in the view. A tensor without memory is at 0."""
    return min(places) >= FIRST and max(places) <= BEHIND - size
