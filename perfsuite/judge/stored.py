"""A job as a durable queue knows it, and the limits of such a queue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class State(StrEnum):
    """The state of a job in a queue."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    CANCELLED = "cancelled"


ENDED = (State.DONE, State.CANCELLED)


@dataclass(frozen=True)
class Stored:
    """A job as the queue knows it. Times are seconds since 1970."""

    id: str
    state: State
    made: float
    began: float | None
    ended: float | None
    deaths: int
    answer: Mapping[str, Any] | None
    new: bool = False
    """True if this call queued it; False if it was there already."""


@dataclass(frozen=True)
class Limits:
    """The limits of a queue. A client that none names is bounded by the same numbers."""

    queued_per_client: int = 1000
    """Jobs of one client that wait."""
    queued: int = 10_000
    """Jobs of all clients that wait."""
    keep_seconds: float = 7 * 86400.0
    """Age at which an ended job is removed."""
    kept_per_client: int = 100_000
    """Ended jobs of one client; the oldest go first."""


class ConflictError(Exception):
    """The identifier belongs to a job with other content."""


class FullError(Exception):
    """The queue takes no more jobs now; the message names the limit."""
