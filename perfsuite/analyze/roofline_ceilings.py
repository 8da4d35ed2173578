"""The ceilings of a roofline, measured on this machine or read from a card's data sheet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from perfsuite.analyze.roofline import Ceiling
from perfsuite.device.data_sheets import data_sheet_of
from perfsuite.machine.ceilings import copy_bytes_a_second, product_flops_a_second
from perfsuite.machine.links_measured import timed

HOST_COPY_BYTES = 2**27
HOST_PRODUCT_SIZE = 768
HOST_REPEATS = 5


@dataclass(frozen=True)
class Ceilings:
    """Ceilings by dtype ("float16"), and a few words that name their source."""

    by_dtype: Mapping[str, Ceiling]
    source: str


def from_data_sheet(gpu: str) -> Ceilings | None:
    """The ceilings of the card's data sheet; None for an unknown card."""
    sheet = data_sheet_of(gpu)
    if sheet is None:
        return None
    half, single = Ceiling(sheet.half, sheet.bandwidth), Ceiling(sheet.single, sheet.bandwidth)
    return Ceilings({"float16": half, "bfloat16": half, "float32": single}, f"data sheet of {sheet.name}")


def measured(device: str, dtypes: list[str]) -> Ceilings:
    """Measure a large copy, and a large product of torch's library for each dtype. `device` is "cuda" or "cpu"."""
    if device == "cuda":
        bandwidth = copy_bytes_a_second(0)
        by_dtype = {dtype: Ceiling(product_flops_a_second(0, dtype), bandwidth) for dtype in dtypes}
        return Ceilings(by_dtype, "measured on this GPU: a large copy, a large torch.mm")
    bandwidth, single = _host_copy(), _host_product("float32")
    # A CPU without 16-bit arithmetic can widen the operands, which may be faster than torch's 16-bit product.
    by_dtype = {dtype: Ceiling(max(single, _host_product(dtype)), bandwidth) for dtype in dtypes}
    return Ceilings(by_dtype, "measured on this CPU: a large copy, torch.mm")


def _host_copy() -> float:
    import torch

    source = torch.ones(HOST_COPY_BYTES, dtype=torch.uint8)
    target = torch.empty_like(source)
    return 2.0 * HOST_COPY_BYTES / min(timed(lambda: target.copy_(source), lambda: None, HOST_REPEATS))


def _host_product(dtype: str) -> float:
    import torch

    size, kind = HOST_PRODUCT_SIZE, getattr(torch, dtype)
    a, b = (torch.randn(size, size).to(kind) for _ in range(2))
    return 2.0 * size**3 / min(timed(lambda: torch.mm(a, b), lambda: None, HOST_REPEATS))
