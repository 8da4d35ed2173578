"""What a clock hands on: paired rounds, with what was seen of the card while they ran."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Side = Literal["candidate", "rival"]


@dataclass(frozen=True)
class Round:
    """Both sides timed once, one right after the other."""

    candidate_seconds: float
    """Seconds a call of the candidate, averaged over the launches of one replay."""
    rival_seconds: float
    """The same for the rival."""
    first: Side
    """Which side ran first; drawn at random."""
    setup: int = 0
    """Which set-up the round belongs to: buffers and graphs are made anew for each."""
    sm_clock_hz: float | None = None
    """SM clock read right after the round; None where it is unknown."""
    discarded: str | None = None
    """Why the round does not count ("thermal-slowdown", "hardware-slowdown", ...); None where it does."""

    @property
    def speed(self) -> float:
        """Rival seconds over candidate seconds: above 1 the candidate is the faster."""
        return self.rival_seconds / self.candidate_seconds


@dataclass(frozen=True)
class Telemetry:
    """What NVML said over the rounds of one case. None means unknown; `unknown` says why."""

    sm_clock_hz: float | None = None
    """Median SM clock over the rounds."""
    sm_clock_low_hz: float | None = None
    sm_clock_high_hz: float | None = None
    memory_clock_hz: float | None = None
    power_watts: float | None = None
    power_limit_watts: float | None = None
    temperature_celsius: float | None = None
    reasons: tuple[str, ...] = ()
    """Clock-event reasons seen in any round, such as "sw-power-cap"."""
    other_processes: int | None = None
    """Processes beside this one that hold a context on the card."""
    mig: bool | None = None
    l2_persistence_reset: bool | None = None
    """Whether persisting L2 lines were reset before timing; None where there is no such cache."""
    clock_settled: bool | None = None
    """Whether the SM clock had settled when warm-up ended; False where its bound ended it."""
    unknown: tuple[str, ...] = ()
    """What could not be read, with the reason."""
