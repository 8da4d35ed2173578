"""The thresholds of the C library's allocator: a change shows in what it does, and is put back."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import threading

import pytest

from perfsuite.guards.allocator import fetches_anew, put_back

pytestmark = pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "gnu_get_libc_version"), reason="another C library")

LOWERED = """
import ctypes
from perfsuite.guards.allocator import fetches_anew, put_back

put_back()
assert not fetches_anew()
for threshold in (4096, 128 << 10):
    ctypes.CDLL(None).mallopt(-3, threshold)  # M_MMAP_THRESHOLD
    ctypes.CDLL(None).malloc_trim(0)
    assert fetches_anew(), threshold
    put_back()
    assert not any(fetches_anew() for _ in range(50))
"""


def test_a_lower_threshold_is_seen_and_put_back() -> None:
    # In a process of its own: a heap that has freed hundreds of megabytes serves blocks whatever its threshold is.
    subprocess.run([sys.executable, "-c", LOWERED], check=True)


def test_threads_with_heaps_of_their_own_say_nothing() -> None:
    found: list[bool] = []
    try:
        ctypes.CDLL(None).mallopt(-3, 4096)
        thread = threading.Thread(target=lambda: found.append(fetches_anew()))
        thread.start()
        thread.join()
    finally:
        put_back()
    assert found == [False]
