"""NVIDIA's architectures since the first tensor cores: what each can do.

Source: CUDA C++ Programming Guide, appendix "Compute Capabilities"; the architectures' white papers.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Architecture:
    """What the cards of a compute capability have."""

    name: str
    capability: tuple[int, int]
    cards: str
    tensor_types: tuple[str, ...]
    """Types that its tensor cores multiply."""
    features: str
    shared_kilobytes: int
    """Shared memory of a block at most, in KiB."""


ARCHITECTURES = (
    Architecture("Volta", (7, 0), "V100", ("FP16",), "first tensor cores", 96),
    Architecture("Turing", (7, 5), "T4, RTX 20", ("FP16", "INT8", "INT4"), "integer tensor cores", 64),
    Architecture(
        "Ampere", (8, 0), "A100, A30", ("FP16", "BF16", "TF32", "FP64", "INT8", "INT4"), "cp.async, 2:4 sparsity", 163
    ),
    Architecture("Ampere", (8, 6), "A10, A40, RTX 30", ("FP16", "BF16", "TF32", "INT8", "INT4"), "cp.async", 99),
    Architecture(
        "Ada", (8, 9), "L4, L40, RTX 40", ("FP16", "BF16", "TF32", "FP8", "INT8", "INT4"), "FP8, large L2", 99
    ),
    Architecture(
        "Hopper",
        (9, 0),
        "H100, H200, GH200",
        ("FP16", "BF16", "TF32", "FP64", "FP8", "INT8"),
        "wgmma, TMA, clusters, distributed shared memory",
        227,
    ),
    Architecture(
        "Blackwell",
        (10, 0),
        "B200, GB200",
        ("FP16", "BF16", "TF32", "FP64", "FP8", "FP6", "FP4", "INT8"),
        "tcgen05, tensor memory, TMA, clusters",
        227,
    ),
    Architecture(
        "Blackwell",
        (12, 0),
        "RTX 50, RTX PRO Blackwell",
        ("FP16", "BF16", "TF32", "FP8", "FP6", "FP4", "INT8"),
        "FP4 by mma.sync, TMA; no tcgen05",
        99,
    ),
)


def architecture_of(capability: tuple[int, ...]) -> Architecture | None:
    """The row that a capability belongs to: the nearest of its major that is not above it; None for what is unknown."""
    known = [row for row in ARCHITECTURES if row.capability[0] == capability[0] and row.capability <= capability]
    return max(known, key=lambda row: row.capability) if known else None
