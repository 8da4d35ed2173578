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
