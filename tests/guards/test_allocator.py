"""The thresholds of the C library's allocator: a change shows in what it does, and is put back."""

from __future__ import annotations

import ctypes
import threading

import pytest

from perfsuite.guards.allocator import fetches_anew, put_back

pytestmark = pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "gnu_get_libc_version"), reason="another C library")


def thresholds(value: int) -> None:
    library = ctypes.CDLL(None)
    library.mallopt(-3, value)  # M_MMAP_THRESHOLD
    library.malloc_trim(0)


def test_a_lower_threshold_is_seen_and_put_back() -> None:
    put_back()
    assert not fetches_anew()
    try:
        for value in (4096, 128 << 10):
            thresholds(value)
            assert fetches_anew()
            put_back()
            assert not any(fetches_anew() for _ in range(50))
    finally:
        put_back()


def test_threads_with_heaps_of_their_own_say_nothing() -> None:
    found: list[bool] = []
    try:
        thresholds(4096)
        thread = threading.Thread(target=lambda: found.append(fetches_anew()))
        thread.start()
        thread.join()
    finally:
        put_back()
    assert found == [False]
