"""The least time that a card could take. Below it, a measurement or an answer must be wrong."""

from __future__ import annotations

from dataclasses import dataclass

from perfsuite.device.data_sheets import operations_of

_KIND = {
    "float64": "float64",
    "float32": "float32",
    "float16": "half",
    "bfloat16": "half",
    "int8": "byte",
    "uint8": "byte",
    "float8_e4m3fn": "byte",
    "float8_e5m2": "byte",
}


@dataclass(frozen=True)
class Ceilings:
    """The peak rates of a card. None means unknown; no floor follows from it."""

    name: str
    flops_a_second: dict[str, float]
    """By dtype name."""
    bytes_a_second: float | None
    """Of device memory: both edges of its clock over the whole bus."""


def ceilings_of(device: int) -> Ceilings:
    """The ceilings of a CUDA device, from its number of multiprocessors, highest clocks and bus width."""
    import torch

    facts = torch.cuda.get_device_properties(device)
    hertz = float(getattr(facts, "clock_rate", 0)) * 1e3
    per_clock = operations_of((facts.major, facts.minor))
    flops = {
        dtype: per_clock[kind] * facts.multi_processor_count * hertz
        for dtype, kind in _KIND.items()
        if kind in per_clock and hertz
    }
    memory_hertz = float(getattr(facts, "memory_clock_rate", 0)) * 1e3
    memory = 2.0 * memory_hertz * float(getattr(facts, "memory_bus_width", 0)) / 8
    return Ceilings(facts.name, flops, memory or None)


@dataclass(frozen=True)
class Floor:
    """The least seconds a call, and the limit behind them."""

    seconds: float
    why: str


def floor_of(
    ceilings: Ceilings, *, flops: float | None, bytes_moved: float | None, dtype: str | None, cold: bool
) -> Floor | None:
    """The floor of a computation: its FLOPs at the card's peak or its bytes at the memory's, whichever is longer.

    `bytes_moved` counts only for inputs that are `cold`. An unknown dtype counts as the fastest. None without a limit.
    """
    floors = []
    peak = ceilings.flops_a_second.get(dtype or "", max(ceilings.flops_a_second.values(), default=0.0))
    if flops and peak:
        floors.append(Floor(flops / peak, f"{flops:.3g} FLOPs at {peak / 1e12:.0f} TFLOPS"))
    if bytes_moved and cold and ceilings.bytes_a_second:
        rate = ceilings.bytes_a_second
        floors.append(Floor(bytes_moved / rate, f"{bytes_moved:.3g} bytes at {rate / 1e12:.2f} TB/s"))
    return max(floors, key=lambda one: one.seconds, default=None)
