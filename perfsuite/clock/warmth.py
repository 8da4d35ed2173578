"""Reads the SM clock by short kernels, and keeps a card busy until that clock has settled."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

LEAD_CYCLES, PROBE_CYCLES = 120_000, (40_000, 240_000)
READINGS = 4
CHUNK_SECONDS = 2e-3
FULL_CLOCK = 0.96
"""Share of the highest clock above which the card counts as not limited."""
SETTLED_SPREAD = 0.1
"""A power limiter moves the clock by up to a tenth all the time; a ramp moves it by more."""
LIMITED_SECONDS = 40e-3
"""Busy time of a card below its full clock. The ratio of two kernels with unlike power changes, by 3 % on an H200, for
the first 30 ms."""
LIMITED_AGAIN_SECONDS = 20e-3
"""The same for a later set-up, which follows a short pause."""
BOUND_SECONDS = 0.3
"""Wall time after which the warm-up always ends."""


class Probe:
    """Reads the SM clock by kernels with a known number of cycles. NVML's reading lags by up to 100 ms."""

    def __init__(self) -> None:
        import torch

        self._events: list[Any] = [torch.cuda.Event(enable_timing=True) for _ in range(3)]
        self._late = False

    def enqueue(self) -> None:
        """Enqueue the kernels on the current stream; about 0.2 ms."""
        import torch

        # An idle stream would begin the first event before the host has launched the kernel behind it.
        torch.cuda._sleep(LEAD_CYCLES)
        self._events[0].record()
        for cycles, event in zip(PROBE_CYCLES, self._events[1:], strict=True):
            torch.cuda._sleep(cycles)
            event.record()
        # Where even that was not enough, the card may have waited for the host between two of the events.
        self._late = self._events[0].query()

    def hertz(self) -> float | None:
        """The clock during these kernels, once they are done; None if the host was too late for a reading.

        Costs of launch and event are in both kernels and cancel.
        """
        if self._late:
            return None
        short, long = (
            before.elapsed_time(after) / 1e3 for before, after in zip(self._events, self._events[1:], strict=False)
        )
        return (PROBE_CYCLES[1] - PROBE_CYCLES[0]) / (long - short) if long > short else None

    def read(self) -> float | None:
        """The clock now; waits for the card."""
        self.enqueue()
        self._events[-1].synchronize()
        return self.hertz()


def warm_up(
    run: Callable[[int], float], read: Callable[[], float | None], full_hz: float | None, limited: float
) -> bool:
    """Keep the card busy until its SM clock has settled; True if it has. `run`: samples a side -> device seconds.

    A card is ready after READINGS readings in a row at its full clock. Otherwise it is kept busy for `limited` seconds.
    """
    start, busy, samples = time.perf_counter(), 0.0, 1
    clocks: list[float] = []
    while True:
        seconds = max(run(samples), 1e-9)
        busy += seconds
        samples = max(1, round(CHUNK_SECONDS * samples / seconds))
        clock = read()
        if clock is not None:
            clocks.append(clock)
        recent = clocks[-READINGS:]
        if len(recent) == READINGS and full_hz is not None and min(recent) >= FULL_CLOCK * full_hz:
            return True
        if busy >= limited or time.perf_counter() - start > BOUND_SECONDS:
            return len(recent) == READINGS and max(recent) <= (1.0 + SETTLED_SPREAD) * min(recent)
