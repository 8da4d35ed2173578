"""Waits for what has left where memory is short: a process that is dying still has its own."""

from __future__ import annotations

from pathlib import Path

from perfsuite.isolate.nursery import settle

PLENTY = 0.75
"""Share of the memory, of the host or of a card, that is free. Above it a candidate's limit is hardly smaller."""


def settle_if_short(device: str) -> None:
    """Wait until every process that has left is gone, unless the host and the device have plenty of free memory."""
    if _free_of_host() < PLENTY or (device == "cuda" and _free_of_card() < PLENTY):
        settle()


def _free_of_host() -> float:
    lines = (line.split() for line in Path("/proc/meminfo").read_text().splitlines())
    told = {words[0]: int(words[1]) for words in lines}
    return told.get("MemAvailable:", 0) / told["MemTotal:"]


def _free_of_card() -> float:
    import torch

    free, total = torch.cuda.mem_get_info()
    return (free + torch.cuda.memory_reserved()) / total
