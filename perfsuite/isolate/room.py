"""Waits for what has left where memory is short: a process that is dying still has its own."""

from __future__ import annotations

import os

from perfsuite.isolate.nursery import settle

PLENTY = 0.75
"""Share of the memory, of the host or of a card, that is free. Above it a candidate's limit is hardly smaller."""


def settle_if_short(device: str) -> None:
    """Wait until every process that has left is gone, unless the host and the device have plenty of free memory."""
    if _free_of_host() < PLENTY or (device == "cuda" and _free_of_card() < PLENTY):
        settle()


def _free_of_host() -> float:
    return os.sysconf("SC_AVPHYS_PAGES") / os.sysconf("SC_PHYS_PAGES")


def _free_of_card() -> float:
    import torch

    free, total = torch.cuda.mem_get_info()
    return (free + torch.cuda.memory_reserved()) / total
