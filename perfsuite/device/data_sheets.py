"""Facts of NVIDIA's architectures since the first tensor cores, and peak rates of some cards.

Sources: CUDA C++ Programming Guide, "Compute Capabilities"; white papers from A100 to Blackwell; data sheets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Architecture:
    """The cards of one compute capability."""

    name: str
    capability: tuple[int, int]
    cards: str
    tensor_types: tuple[str, ...]
    """Types that its tensor cores multiply."""
    features: str
    shared_kilobytes: int
    """Shared memory of a block at most, in KiB."""
    operations: Mapping[str, int] = field(default_factory=dict)
    """Dense operations per clock and multiprocessor on the fastest path for a type (TF32 for float32).

    If white papers differ by product, this is the larger figure. Empty if no paper gives one.
    """


_GA100 = {"float64": 128, "float32": 1024, "half": 2048, "byte": 4096}
_GA102_AND_ADA = {"float64": 4, "float32": 256, "half": 1024, "byte": 2048}
_HOPPER = {"float64": 256, "float32": 2048, "half": 4096, "byte": 8192}
_BLACKWELL = {"float64": 256, "float32": 4096, "half": 8192, "byte": 32768}
_AMPERE_TYPES = ("FP16", "BF16", "TF32", "FP64", "INT8", "INT4")
_GA102_TYPES = ("FP16", "BF16", "TF32", "INT8", "INT4")
_ADA_TYPES = ("FP16", "BF16", "TF32", "FP8", "INT8", "INT4")
_HOPPER_TYPES = ("FP16", "BF16", "TF32", "FP64", "FP8", "INT8")
_B200_TYPES = ("FP16", "BF16", "TF32", "FP64", "FP8", "FP6", "FP4", "INT8")
_RTX_50_TYPES = ("FP16", "BF16", "TF32", "FP8", "FP6", "FP4", "INT8")
_HOPPER_FEATURES = "wgmma, TMA, clusters, distributed shared memory"
_B200_FEATURES = "tcgen05, tensor memory, TMA, clusters"
_RTX_50_FEATURES = "FP4 by mma.sync, TMA; no tcgen05"
ARCHITECTURES = (
    Architecture("Volta", (7, 0), "V100", ("FP16",), "first tensor cores", 96),
    Architecture("Turing", (7, 5), "T4, RTX 20", ("FP16", "INT8", "INT4"), "integer tensor cores", 64),
    Architecture("Ampere", (8, 0), "A100, A30", _AMPERE_TYPES, "cp.async, 2:4 sparsity", 163, _GA100),
    Architecture("Ampere", (8, 6), "A10, A40, RTX 30", _GA102_TYPES, "cp.async", 99, _GA102_AND_ADA),
    Architecture("Ada", (8, 9), "L4, L40, RTX 40", _ADA_TYPES, "FP8, large L2", 99, _GA102_AND_ADA),
    Architecture("Hopper", (9, 0), "H100, H200, GH200", _HOPPER_TYPES, _HOPPER_FEATURES, 227, _HOPPER),
    Architecture("Blackwell", (10, 0), "B200, GB200", _B200_TYPES, _B200_FEATURES, 227, _BLACKWELL),
    Architecture("Blackwell", (12, 0), "RTX 50, RTX PRO Blackwell", _RTX_50_TYPES, _RTX_50_FEATURES, 99),
)


def architecture_of(capability: tuple[int, ...]) -> Architecture | None:
    """The nearest row of the same major version that is not above the capability; None for an unknown major."""
    known = [row for row in ARCHITECTURES if row.capability[0] == capability[0] and row.capability <= capability]
    return max(known, key=lambda row: row.capability) if known else None


def operations_of(capability: tuple[int, int]) -> Mapping[str, int]:
    """`Architecture.operations` of exactly this capability; empty if they are unknown."""
    return next((row.operations for row in ARCHITECTURES if row.capability == capability), {})


@dataclass(frozen=True)
class DataSheet:
    """A card's peak rates without sparsity: 16-bit and plain float32 FLOPs a second, bytes a second."""

    name: str
    half: float
    single: float
    bandwidth: float


DATA_SHEETS = (
    DataSheet("H200", 989.5e12, 66.9e12, 4.8e12),
    DataSheet("H100 PCIe", 756e12, 51.2e12, 2.0e12),
    DataSheet("H100", 989.5e12, 66.9e12, 3.35e12),
    DataSheet("A100-SXM4-80GB", 312e12, 19.5e12, 2.039e12),
    DataSheet("A100", 312e12, 19.5e12, 1.555e12),
    DataSheet("A10", 125e12, 31.2e12, 0.6e12),
    DataSheet("L4", 121e12, 30.3e12, 0.3e12),
)
"""A name that contains another one comes first."""


def data_sheet_of(gpu: str) -> DataSheet | None:
    """The first data sheet whose words are all in the card's name; None for an unknown card."""
    words = gpu.replace("_", " ").split()
    return next((sheet for sheet in DATA_SHEETS if all(word in words for word in sheet.name.split())), None)
