"""The thresholds of the C library's allocator, which a call can change by mallopt(3) and nobody can read.

Below a threshold that grows by itself, freed memory is used again. A lower one, or one that grows no more, sends each
allocation to the system: the pages of every result are then fetched anew.
"""

from __future__ import annotations

import ctypes
import threading
from functools import lru_cache
from typing import Any

TRIED, BLOCKS = 31 << 20, 4
"""Bytes of a block that is tried, less than the threshold grows to; and blocks, more than most heaps have free."""
MAPPED, FLAGS = 2, 7
"""Bits of a block's size, which lies before it: it came from the system alone, and all that say something of it."""
M_MMAP_THRESHOLD, M_TRIM_THRESHOLD, PUT_BACK = -3, -1, 32 << 20


def fetches_anew() -> bool:
    """True if memory that was freed is not used again; False as well where that cannot be told.

    Once a large block has been freed, others of its size come from the heap.
    """
    library = _library()
    if library is None or threading.current_thread() is not threading.main_thread():  # others have heaps of their own
        return False
    library.free(library.malloc(TRIED))
    blocks = [block for block in (library.malloc(TRIED) for _ in range(BLOCKS)) if block]
    sizes = [ctypes.c_size_t.from_address(block - ctypes.sizeof(ctypes.c_size_t)).value for block in blocks]
    for block in blocks:
        library.free(block)
    of_the_c_library = all(TRIED <= size & ~FLAGS < 2 * TRIED for size in sizes)
    return of_the_c_library and any(size & MAPPED for size in sizes)


def put_back() -> None:
    """Let the allocator keep what it keeps in a process that has freed large blocks."""
    library = _library()
    if library is not None:
        library.mallopt(M_MMAP_THRESHOLD, PUT_BACK)
        library.mallopt(M_TRIM_THRESHOLD, 2 * PUT_BACK)


@lru_cache(maxsize=1)
def _library() -> Any:
    """glibc; None for other C libraries, which have other allocators."""
    library = ctypes.CDLL(None)
    if not hasattr(library, "gnu_get_libc_version"):
        return None
    library.malloc.restype, library.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    library.free.restype, library.free.argtypes = None, [ctypes.c_void_p]
    return library
