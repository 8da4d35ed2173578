"""Links between host and devices, and between devices: their kinds, peak rates and measured rates."""

from __future__ import annotations

from dataclasses import dataclass

PCIE_TRANSFERS = {1: 2.5e9, 2: 5e9, 3: 8e9, 4: 16e9, 5: 32e9, 6: 64e9}
"""Transfers a second of a lane by generation (PCI-SIG)."""
OLD_ENCODING, NEW_ENCODING, FLIT_ENCODING = 8.0 / 10.0, 128.0 / 130.0, 242.0 / 256.0
"""Payload over transfers: generations 1 and 2, 3 to 5, 6. Packet headers take some more."""
NVLINK_VERSIONS = {1: "1.0", 2: "2.0", 3: "2.2", 4: "3.0", 5: "3.1", 6: "4.0", 7: "5.0"}
"""NVML's number of a version -> version (nvml.h, NVML_NVLINK_VERSION_*)."""
NVLINK_BYTES = {"1.0": 20e9, "2.0": 25e9, "2.2": 25e9, "3.0": 25e9, "3.1": 25e9, "4.0": 25e9, "5.0": 50e9}
"""Bytes a second of one link in one direction, by version (NVIDIA's data sheets: 18 of version 4.0 are 450 GB/s)."""
COLLECTIVES = {"all_reduce": lambda ranks: 2.0 * (ranks - 1) / ranks, "all_gather": lambda ranks: (ranks - 1) / ranks}
"""The least share of a collective's bytes that crosses each link. Bus bandwidth is share x bytes / seconds, with the
bytes of the whole result (nccl-tests, PERFORMANCE.md)."""


@dataclass(frozen=True)
class Link:
    """One direction between two ends, measured. Bytes and seconds."""

    source: str
    target: str
    kind: str
    """ "PCIe 5.0 x16", "NVLink 4.0 x18", "pageable PCIe 5.0 x16"."""
    bytes_a_second: float
    latency_seconds: float
    """Of a copy of a few bytes, until the host knows that it has arrived."""
    peak_bytes_a_second: float | None = None

    @property
    def share(self) -> float | None:
        """Measured rate over the peak."""
        return None if self.peak_bytes_a_second is None else self.bytes_a_second / self.peak_bytes_a_second


@dataclass(frozen=True)
class Collective:
    """A collective over all GPUs, measured."""

    name: str
    ranks: int
    bytes: float
    """Of the result on each rank."""
    seconds: float
    latency_seconds: float
    """Seconds of the same collective on a few bytes."""

    @property
    def bus_bytes_a_second(self) -> float:
        """Bus bandwidth. It is comparable with a link's bandwidth for any number of ranks."""
        return COLLECTIVES[self.name](self.ranks) * self.bytes / self.seconds


def pcie_peak(generation: int, width: int) -> float | None:
    """Bytes a second in one direction; None for an unknown generation."""
    if generation not in PCIE_TRANSFERS:
        return None
    encoding = OLD_ENCODING if generation < 3 else FLIT_ENCODING if generation >= 6 else NEW_ENCODING
    return PCIE_TRANSFERS[generation] * width * encoding / 8.0


def nvlink_peak(version: str, links: int) -> float | None:
    """Bytes a second in one direction over all links; None for an unknown version or no links."""
    return NVLINK_BYTES[version] * links if version in NVLINK_BYTES and links else None
