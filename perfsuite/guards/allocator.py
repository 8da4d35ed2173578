"""The thresholds of the C library's allocator, which a call can change by mallopt(3) and nobody can read.

Below a threshold that grows by itself, freed memory is used again. A lower one, or one that grows no more, sends each
allocation to the system: the pages of every result are then fetched anew.
"""

from __future__ import annotations

import ctypes
import threading
from functools import lru_cache
from typing import Any

TRIED = 31 << 20
"""Bytes of the allocation that is tried: more than a heap has free in one piece, as a rule, and less than the threshold
grows to. A heap with more at its end serves results whatever the thresholds are."""
MAPPED, FLAGS = 2, 7
"""Bits of a block's size, which lies before it: it came from the system alone, and all that say something of it."""
M_MMAP_THRESHOLD, M_TRIM_THRESHOLD, PUT_BACK = -3, -1, 32 << 20


class _Uses(ctypes.Structure):
    """struct mallinfo2 of malloc.h; the last field counts the free bytes at the heap's end."""

    _fields_ = (("others", ctypes.c_size_t * 9), ("keepcost", ctypes.c_size_t))


def fetches_anew() -> bool:
    """True if memory that was freed is not used again; False as well where that cannot be told.

    Once a large block has been freed, another one of its size comes from what the allocator keeps.
    """
    library = _library()
    on_main = threading.current_thread() is threading.main_thread()  # other threads have heaps of their own
    if library is None or not on_main or library.mallinfo2().keepcost >= TRIED:
        return False
    library.free(library.malloc(TRIED))
    again = library.malloc(TRIED)
    if not again:
        return False
    whole = ctypes.c_size_t.from_address(again - ctypes.sizeof(ctypes.c_size_t)).value
    library.free(again)
    of_the_c_library = TRIED <= whole & ~FLAGS < 2 * TRIED
    return of_the_c_library and bool(whole & MAPPED)


def put_back() -> None:
    """Let the allocator keep what it keeps in a process that has freed large blocks."""
    library = _library()
    if library is not None:
        library.mallopt(M_MMAP_THRESHOLD, PUT_BACK)
        library.mallopt(M_TRIM_THRESHOLD, 2 * PUT_BACK)


@lru_cache(maxsize=1)
def _library() -> Any:
    """glibc, from the version on that counts in 64 bits; None for other C libraries."""
    library = ctypes.CDLL(None)
    if not hasattr(library, "gnu_get_libc_version") or not hasattr(library, "mallinfo2"):
        return None
    library.mallinfo2.restype = _Uses
    library.malloc.restype, library.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    library.free.restype, library.free.argtypes = None, [ctypes.c_void_p]
    return library
