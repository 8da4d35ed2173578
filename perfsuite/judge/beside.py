"""The number of processes that share a card: as many as this machine's processors and memory feed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from perfsuite.device.cards import Device

MOST = 4
"""On an H200 with 16 processors 1, 2 and 4 processes gave 2,700, 4,200 and 5,000 timed answers an hour; 8 gave fewer.
The driver makes one context after another, and one process at a time times."""
PROCESSORS, HOST_BYTES, CARD_BYTES = 4, 8 << 30, 8 << 30
"""The needs of a process of a pool with those that it starts: for its rival, its candidate, and the next candidate."""
CGROUPS = Path("/sys/fs/cgroup")
"""Where the operating system says what this container may use."""


def on_each_card(cards: Sequence[Device], jobs: int | None = None) -> int:
    """The processes on each of these cards, at least one. jobs: their number, if it is known."""
    if not cards:
        return 1
    each = [
        MOST,
        _processors() // (PROCESSORS * len(cards)),
        _host_bytes() // (HOST_BYTES * len(cards)),
        min(card.memory_bytes for card in cards) // CARD_BYTES,
        *([] if jobs is None else [-(-jobs // len(cards))]),
    ]
    return max(1, min(each))


def _processors() -> int:
    """Those on which this process may run, or what its container may use of them."""
    there = len(os.sched_getaffinity(0))
    quota, _, period = _read("cpu.max").partition(" ")
    return min(there, max(1, int(quota) // int(period))) if quota.isdigit() and period.isdigit() else there


def _host_bytes() -> int:
    """Bytes of the machine's memory, or of its container's."""
    there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGESIZE")
    most = _read("memory.max")
    return min(there, int(most)) if most.isdigit() else there


def _read(name: str) -> str:
    try:
        return (CGROUPS / name).read_text().strip()
    except OSError:
        return ""
