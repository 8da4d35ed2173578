"""Words on which streams wait: of a card's memory for streams of two processes, of the host's for a gate.

The calls are in the CUDA driver API's chapter "Stream Memory Operations".
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import threading
import time
from collections.abc import Iterator
from typing import Any

from perfsuite.clock.warmth import Probe
from perfsuite.isolate.card_memory import call_driver

WORDS_BYTES = 4096
"""At the beginning of the memory that a side's process shares; results lie behind them."""
START, END = 0, 512
"""Where in these bytes the words lie that let a worker's queue begin, and that say that it has ended."""
AT_LEAST, PLAIN, MAPPED = 0, 0, 2
"""CU_STREAM_WAIT_VALUE_GEQ, CU_STREAM_WRITE_VALUE_DEFAULT, CU_MEMHOSTREGISTER_DEVICEMAP."""
LONGEST_CLOSED_SECONDS = 5.0
"""A gate opens by itself after this time: a call that waits for the card would never return behind a closed one."""
WATCH_SECONDS = 0.5
SETTLING_CYCLES = 20_000


def wait(stream: Any, address: int, value: int) -> None:
    """Let what follows on the stream wait until the word is at least `value`, in the order of a counter."""
    _on(stream, "cuStreamWaitValue32_v2", address, value, AT_LEAST)


def write(stream: Any, address: int, value: int) -> None:
    """Write the word when all before it on the stream is done and can be seen."""
    _on(stream, "cuStreamWriteValue32_v2", address, value, PLAIN)


def _on(stream: Any, name: str, address: int, value: int, flags: int) -> None:
    word = ctypes.c_uint32(value & 0xFFFFFFFF)
    call_driver(name, ctypes.c_void_p(stream.cuda_stream), ctypes.c_uint64(address), word, ctypes.c_uint(flags))


class Gate:
    """Behind it a stream waits for the host. What is enqueued meanwhile then runs without a gap for the host."""

    def __init__(self) -> None:
        """Raises CardMemoryError."""
        self._page = mmap.mmap(-1, mmap.PAGESIZE)
        self._words = (ctypes.c_uint32 * 1).from_buffer(self._page)
        self._host = ctypes.c_void_p(ctypes.addressof(self._words))
        address = ctypes.c_uint64()
        call_driver("cuMemHostRegister_v2", self._host, ctypes.c_size_t(mmap.PAGESIZE), ctypes.c_uint(MAPPED))
        call_driver("cuMemHostGetDevicePointer_v2", ctypes.byref(address), self._host, ctypes.c_uint(0))
        self._address, self._value = address.value, 0
        self._since: float | None = None
        self._gone = threading.Event()
        threading.Thread(target=self._watch, name="perfsuite gate", daemon=True).start()

    @contextlib.contextmanager
    def closed(self, stream: Any) -> Iterator[None]:
        """All that the block enqueues on the stream waits until the block ends."""
        self._value += 1
        wait(stream, self._address, self._value)
        self._since = time.monotonic()
        try:
            yield
        finally:
            self._open()

    def close(self) -> None:
        """Open it for good, and free its memory. The stream must have passed it."""
        self._gone.set()
        self._open()
        with contextlib.suppress(RuntimeError):
            call_driver("cuMemHostUnregister", self._host)

    def _open(self) -> None:
        self._words[0] = self._value
        self._since = None

    def _watch(self) -> None:
        while not self._gone.wait(WATCH_SECONDS):
            since = self._since
            if since is not None and time.monotonic() - since > LONGEST_CLOSED_SECONDS:
                self._open()


class SettledProbe(Probe):
    """Reads the clock behind a kernel that takes the card back from another process."""

    def enqueue(self) -> None:
        import torch

        torch.cuda._sleep(SETTLING_CYCLES)
        super().enqueue()
