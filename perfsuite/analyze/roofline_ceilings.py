"""Where the ceilings of a roofline come from: given, measured on this machine, or a card's data sheet."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from perfsuite.analyze.roofline import Ceiling

HOST_COPY_BYTES = 2**27
HOST_PRODUCT_SIZE = 768
HOST_REPEATS = 5


@dataclass(frozen=True)
class Ceilings:
    """Ceilings by dtype ("float16"), and a few words on where they come from."""

    by_dtype: Mapping[str, Ceiling]
    source: str


@dataclass(frozen=True)
class DataSheet:
    """A card's own numbers: dense tensor-core FLOPs a second for 16 bits, plain float32, bytes a second."""

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
"""NVIDIA's data sheets, without sparsity; a name that holds another comes before it."""


def from_data_sheet(gpu: str) -> Ceilings | None:
    """The ceilings of the first data sheet whose words are all in the card's name; None for an unknown card."""
    words = gpu.replace("_", " ").split()
    for sheet in DATA_SHEETS:
        if all(word in words for word in sheet.name.split()):
            half, single = Ceiling(sheet.half, sheet.bandwidth), Ceiling(sheet.single, sheet.bandwidth)
            return Ceilings({"float16": half, "bfloat16": half, "float32": single}, f"data sheet of {sheet.name}")
    return None


def measured(device: str, dtypes: list[str]) -> Ceilings:
    """Measured here, now: a large copy and a large product of torch's library a dtype. `device` is "cuda" or "cpu"."""
    if device == "cuda":
        from perfsuite.machine.ceilings import copy_bytes_a_second, product_flops_a_second

        bandwidth = copy_bytes_a_second(0)
        by_dtype = {dtype: Ceiling(product_flops_a_second(0, dtype), bandwidth) for dtype in dtypes}
        return Ceilings(by_dtype, "measured on this GPU: a large copy, a large torch.mm")
    bandwidth, single = _host_copy(), _host_product("float32")
    # A CPU without 16-bit arithmetic widens its operands, and torch's 16-bit product may be slower than that need be.
    by_dtype = {dtype: Ceiling(max(single, _host_product(dtype)), bandwidth) for dtype in dtypes}
    return Ceilings(by_dtype, "measured on this CPU: a large copy, torch.mm")


def _host_copy() -> float:
    import torch

    source = torch.ones(HOST_COPY_BYTES, dtype=torch.uint8)
    target = torch.empty_like(source)
    return 2.0 * HOST_COPY_BYTES / _best_seconds(lambda: target.copy_(source))


def _host_product(dtype: str) -> float:
    import torch

    size, kind = HOST_PRODUCT_SIZE, getattr(torch, dtype)
    a, b = (torch.randn(size, size).to(kind) for _ in range(2))
    return 2.0 * size**3 / _best_seconds(lambda: torch.mm(a, b))


def _best_seconds(call: Callable[[], Any]) -> float:
    call()
    found = []
    for _ in range(HOST_REPEATS):
        begun = time.perf_counter()
        call()
        found.append(time.perf_counter() - begun)
    return min(found)
