"""The protocol of the four clocks, and the two sides that they time."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from perfsuite.clock.rounds import Round, Side
from perfsuite.device.telemetry import Telemetry
from perfsuite.problems.base import Inputs
from perfsuite.settings import CacheMode

ClockKind = Literal["graph", "events", "host", "fake"]


@dataclass(frozen=True)
class Sides:
    """The two functions that are timed in turn, and the source of their inputs."""

    candidate: Callable[..., Any]
    rival: Callable[..., Any]
    make_inputs: Callable[[], Inputs]
    """Returns inputs with new values at every call, on the device that is timed."""


@dataclass(frozen=True)
class TimedCall:
    """Inputs and outputs of one call that was inside the timed region."""

    inputs: Inputs
    candidate_output: Any
    rival_output: Any
    """None if it was not kept: a candidate could find a right answer in memory."""
    inputs_changed: bool = False
    """True if the values of an input of the rotation have changed."""


class CaptureError(RuntimeError):
    """A side cannot be captured into a CUDA graph; the message names the side and the cause."""

    def __init__(self, side: str, cause: BaseException) -> None:
        lines = str(cause).strip().splitlines()
        super().__init__(f"the {side} cannot be captured: {type(cause).__name__}: {lines[0] if lines else ''}".rstrip())
        self.side = side
        self.cause = cause


class SideFailedError(RuntimeError):
    """A side raised `cause` during a call."""

    def __init__(self, side: str, cause: BaseException) -> None:
        super().__init__(f"the {side} raised {type(cause).__name__}: {cause}")
        self.side = side
        self.cause = cause


class Clock(Protocol):
    """Times the two functions of `Sides` in turn. `setup` comes before `rounds`, and may come again."""

    kind: ClockKind
    note: str | None
    """The reason for this clock, if it is not the default one."""
    rotation: int
    """Sets of inputs that are rotated."""
    launches: int
    """Calls in one sample."""
    warnings: list[str]

    def setup(self) -> None:
        """Make inputs, buffers and graphs anew, at other addresses and with other values, and warm up.

        Raises CaptureError or SideFailedError.
        """

    def rounds(self, count: int) -> list[Round]:
        """Time `count` paired rounds, each in random order."""

    def timed_calls(self, count: int) -> list[TimedCall]:
        """At most `count` calls, chosen at random among those of the last round."""

    def look_at_more(self, count: int, look: Callable[[Any, Any], Any]) -> list[Any]:
        """Results of `look(candidate's output, rival's output)` for up to `count` further calls, as they were timed.

        Inputs change from call to call. Empty, the default, if timed calls cannot be repeated.
        """
        return []

    def kernels(self) -> tuple[set[str], set[str]] | None:
        """Names of the kernels in timed calls of candidate and rival; None, the default, if they are unknown.

        Raises RuntimeError, OSError or AttributeError if the driver does not name them.
        """
        return None

    def host_seconds(self) -> tuple[float | None, float | None]:
        """Host seconds until a call of the candidate, and of the rival, returns without waiting for the device."""

    def telemetry(self) -> Telemetry:
        """The readings of the device over all rounds so far."""

    @property
    def seconds_spent(self) -> float:
        """Device time (host time for the host clock) of warm-up and rounds so far."""

    def close(self) -> None:
        """Free graphs and buffers."""


class CallingClock(Clock):
    """The state that all clocks of real calls share."""

    def __init__(self, sides: Sides, *, cache: CacheMode = "cold", seed: int = 0, note: str | None = None) -> None:
        self.sides, self.cache, self.note = sides, cache, note
        self.rotation = 0
        self.launches = 0
        self.warnings: list[str] = []
        self._order = random.Random(seed)
        self._seconds = 0.0
        self._setups = 0
        self._sets: list[Inputs] = []
        self._settled: bool | None = None

    @property
    def seconds_spent(self) -> float:
        return self._seconds

    def _function(self, side: Side) -> Callable[..., Any]:
        return self.sides.candidate if side == "candidate" else self.sides.rival
