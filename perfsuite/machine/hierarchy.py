"""The memory hierarchy of a card: bandwidth and latency of its levels. Arithmetic alone."""

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
"""The L2 is read in a region of its size over this number, so that each partition can keep all of it."""
HBM_MULTIPLE = 4
"""Device memory is chased in a region of this many times the L2. Each line is visited once at most."""


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
    """The card's limit, if it is known."""

    @property
    def share(self) -> float | None:
        """Measured over the peak."""
        return None if self.peak_bytes_a_second is None else self.bytes_a_second / self.peak_bytes_a_second

    @property
    def bytes_in_flight(self) -> float:
        """Bytes under way that keep up the bandwidth at that latency (Little's law): bandwidth x latency."""
        return self.bytes_a_second * self.latency_seconds


def shared_peak(multiprocessors: int, clock_hz: float) -> float:
    """Bytes a second of all shared memories: banks x 4 bytes a cycle and SM."""
    return SHARED_BYTES_A_CYCLE * multiprocessors * clock_hz


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
    """A sentence for each level that compares it with the next further one."""
    return [
        f"{near.name} gives {near.bytes_a_second / far.bytes_a_second:.1f} times the bytes of {far.name} "
        f"at {near.latency_seconds / far.latency_seconds:.0%} of its latency"
        for near, far in itertools.pairwise(levels)
    ]
