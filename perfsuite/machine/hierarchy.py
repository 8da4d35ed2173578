"""The memory hierarchy of a card: what each level gives a second, and how long a load takes. Arithmetic alone."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

LINE_BYTES = 128
SHARED_BYTES_A_CYCLE = 128.0
"""Of one SM: 32 banks of 4 bytes (CUDA C++ Programming Guide, "Shared Memory", compute capability 5.0 and later)."""
L2_SHARE = 4
"""The L2 is read in a region of one part in so many of its size: all of it stays, in each partition that keeps it."""
HBM_MULTIPLE = 4
"""Device memory is chased in a region of so many times the L2, of which each line is visited once at most."""


@dataclass(frozen=True)
class Level:
    """One level of the hierarchy, measured."""

    name: str
    bytes_a_second: float
    """Of the whole card."""
    latency_seconds: float
    latency_cycles: float
    bytes: float
    """Of the region that was read."""
    peak_bytes_a_second: float | None = None
    """What the card could give at most, where that is known."""

    @property
    def share(self) -> float | None:
        """Measured over the peak."""
        return None if self.peak_bytes_a_second is None else self.bytes_a_second / self.peak_bytes_a_second

    @property
    def bytes_in_flight(self) -> float:
        """What must be under way to keep that bandwidth at that latency (Little's law): bandwidth x latency."""
        return self.bytes_a_second * self.latency_seconds


def shared_peak(multiprocessors: int, clock_hz: float) -> float:
    """Bytes a second of all shared memories: banks x 4 bytes a cycle and SM."""
    return SHARED_BYTES_A_CYCLE * multiprocessors * clock_hz


def memory_peak(bus_bits: float, clock_hz: float) -> float:
    """Bytes a second of device memory: two transfers a clock over the whole bus (data sheets count so)."""
    return 2.0 * clock_hz * bus_bits / 8.0


def ring(lines: int, base: int, generator: torch.Generator) -> torch.Tensor:
    """Addresses for a chase through `lines` lines from address `base`, each visited once in random order.

    An int64 tensor of lines x 16 on the generator's device: the first element of a line is the address of the next.
    """
    import torch

    order = torch.randperm(lines, generator=generator, device=generator.device)
    order = order.roll(-int((order == 0).nonzero().item()))  # the chase begins at the first line
    table = torch.zeros(lines, LINE_BYTES // 8, dtype=torch.int64, device=generator.device)
    table[order, 0] = base + LINE_BYTES * order.roll(-1)
    return table


def ratios(levels: Sequence[Level]) -> list[str]:
    """How each level compares with the next further one, in words."""
    return [
        f"{near.name} gives {near.bytes_a_second / far.bytes_a_second:.1f} times the bytes of {far.name} "
        f"at {near.latency_seconds / far.latency_seconds:.0%} of its latency"
        for near, far in itertools.pairwise(levels)
    ]
