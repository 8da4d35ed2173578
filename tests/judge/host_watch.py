"""The processors of this machine and its cards, watched while something runs: the share of the time they were busy."""

from __future__ import annotations

import contextlib
import statistics
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from perfsuite.device.cards import Device


class Processors:
    """The share of some processors that was busy since this object was made."""

    def __init__(self, own: Sequence[int]) -> None:
        """own: their numbers."""
        self._own = {f"cpu{number}" for number in own}
        self._before = self._read()

    def _read(self) -> tuple[int, int]:
        """(all ticks, idle ones) of these processors; of all, where a container numbers them in another way."""
        lines = [line.split() for line in Path("/proc/stat").read_text().splitlines() if line.startswith("cpu")]
        own = [line for line in lines if line[0] in self._own] or lines[:1]
        ticks = [[int(word) for word in line[1:9]] for line in own]
        return sum(map(sum, ticks)), sum(one[3] + one[4] for one in ticks)

    def busy(self) -> float | None:
        """Between 0 and 1; None where the kernel does not count."""
        (all_before, idle_before), (all_now, idle_now) = self._before, self._read()
        if all_now <= all_before:
            return None
        return min(1.0, max(0.0, 1.0 - (idle_now - idle_before) / (all_now - all_before)))


class Cards:
    """A thread that asks NVML once a second which share of the time each card had a kernel. Use it in a `with`."""

    SECONDS = 1.0

    def __init__(self, cards: Sequence[Device]) -> None:
        self._cards, self._end = cards, threading.Event()
        self._seen: dict[str, list[float]] = {card.selector: [] for card in cards}
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Cards:
        if self._cards:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        if self._cards:
            self._thread.join()

    def _watch(self) -> None:
        import pynvml  # type: ignore[import-untyped]

        with contextlib.suppress(pynvml.NVMLError):  # what cannot be read has no figure
            pynvml.nvmlInit()
            handles = {card.selector: pynvml.nvmlDeviceGetHandleByUUID(card.uuid) for card in self._cards}
            while not self._end.wait(self.SECONDS):
                for selector, handle in handles.items():
                    self._seen[selector].append(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100.0)
            pynvml.nvmlShutdown()

    def busy(self) -> dict[str, Any]:
        """Card -> the mean of what was seen; nothing of a card that was not seen."""
        return {selector: statistics.fmean(seen) for selector, seen in self._seen.items() if seen}
