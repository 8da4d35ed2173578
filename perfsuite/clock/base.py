"""The one protocol of the four clocks, and what they are opened over."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from perfsuite.clock.rounds import Round
from perfsuite.device.telemetry import Telemetry
from perfsuite.problems.base import Inputs

ClockKind = Literal["graph", "events", "host", "fake"]


@dataclass(frozen=True)
class Sides:
    """The two functions that are timed in turn, and where their inputs come from."""

    candidate: Callable[..., Any]
    rival: Callable[..., Any]
    make_inputs: Callable[[], Inputs]
    """Gives inputs with new values at every call, on the device that is timed."""


@dataclass(frozen=True)
class TimedCall:
    """Inputs and outputs of one call that was inside the timed region."""

    inputs: Inputs
    candidate_output: Any
    rival_output: Any
    """None where it was not kept: a right answer that lies about could be found."""
    inputs_changed: bool = False
    """Whether some input of the rotation holds other values than those that it was given."""


class CaptureError(RuntimeError):
    """A side cannot be captured into a CUDA graph; the message says which and why."""

    def __init__(self, side: str, cause: BaseException) -> None:
        lines = str(cause).strip().splitlines()
        super().__init__(f"the {side} cannot be captured: {type(cause).__name__}: {lines[0] if lines else ''}".rstrip())
        self.side = side
        self.cause = cause


class SideFailedError(RuntimeError):
    """A side raised while it was called; `side` says which, `cause` what."""

    def __init__(self, side: str, cause: BaseException) -> None:
        super().__init__(f"the {side} raised {type(cause).__name__}: {cause}")
        self.side = side
        self.cause = cause


class Clock(Protocol):
    """Times two sides in turn. Opened over `Sides`; `setup` comes before `rounds`, and may come again."""

    kind: ClockKind
    note: str | None
    """Why this clock and not the default one."""
    rotation: int
    """Sets of inputs that are rotated."""
    launches: int
    """Calls in one sample."""
    warnings: list[str]

    def setup(self) -> None:
        """Make inputs, buffers and graphs anew, at other addresses and with other values, and warm up.

        Raises CaptureError or SideFailedError.
        """
        ...

    def rounds(self, count: int) -> list[Round]:
        """Time `count` paired rounds, each in random order."""
        ...

    def timed_calls(self, count: int) -> list[TimedCall]:
        """`count` calls (fewer where there are fewer), chosen at random among those of the last round."""
        ...

    def look_at_more(self, count: int, look: Callable[[Any, Any], Any]) -> list[Any]:
        """What `look` makes of the outputs of candidate and rival in up to `count` further calls, as they were timed.

        Inputs change from one to the next. Empty where nothing that was timed can be called again, as by default.
        """
        return []

    def kernels(self) -> tuple[set[str], set[str]] | None:
        """Names of the kernels in timed calls of candidate and rival; None where this clock does not know, the default.

        Raises RuntimeError, OSError or AttributeError where the driver does not name them.
        """
        return None

    def host_seconds(self) -> tuple[float | None, float | None]:
        """Host time that a call of the candidate, and of the rival, takes to return, without waiting for the device."""
        ...

    def telemetry(self) -> Telemetry:
        """What was seen of the device over all rounds so far."""
        ...

    @property
    def seconds_spent(self) -> float:
        """Device time (host time for the host clock) of warm-up and rounds so far."""
        ...

    def close(self) -> None:
        """Free graphs and buffers."""
        ...
