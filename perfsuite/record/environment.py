"""The environment of a measurement in a record; `record.fingerprint` finds the values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Environment:
    """Clocks in hertz, power in watts. None stands for a value that is unknown, or does not apply to a CPU."""

    harness: str
    """Times of two harnesses may differ for that reason alone."""
    perfsuite: str | None = None
    commit: str | None
    dirty: bool | None
    """True where the tree had changes that were not committed."""
    python: str | None = None
    cpu: str | None = None
    gpu: str | None
    capability: str | None = None
    multiprocessors: int | None = None
    torch: str | None
    cuda: str | None
    cublas: str | None = None
    cudnn: str | None = None
    flash_attn: str | None = None
    driver: str | None = None
    sm_clock_max_hz: float | None = None
    memory_clock_max_hz: float | None = None
    power_limit_watts: float | None = None
    mode: Mapping[str, bool | None] | None = None
    """Modes that change the speed of a card but not its name: "mig", "mps", "ecc", "persistence"."""
