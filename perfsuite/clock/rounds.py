"""Paired rounds: the times that a clock returns, with its readings of the card."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Side = Literal["candidate", "rival"]
SIDES: tuple[Side, ...] = ("candidate", "rival")


@dataclass(frozen=True)
class Round:
    """Both sides timed once, one right after the other."""

    candidate_seconds: float
    """Seconds a call, averaged over the launches of one replay."""
    rival_seconds: float
    first: Side
    """The side that ran first, drawn at random."""
    setup: int = 0
    """Number of the set-up: buffers and graphs are made anew for each."""
    sm_clock_hz: float | None = None
    """SM clock read right after the round; None if it is unknown."""
    discarded: str | None = None
    """The reason why the round does not count ("hw-slowdown", "hw-thermal-slowdown", ...); None if it counts."""

    @property
    def speed(self) -> float:
        """Rival seconds over candidate seconds: above 1 the candidate is faster."""
        return self.rival_seconds / self.candidate_seconds
