"""The protocol of the four clocks, and the two sides that they time."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from perfsuite.clock.deck import Moves
from perfsuite.clock.garbage import collect_young
from perfsuite.clock.rounds import SIDES, Round, Side
from perfsuite.device.telemetry import Telemetry
from perfsuite.guards.watch import Watch
from perfsuite.problems.base import Inputs
from perfsuite.problems.differentiated import needs_preparing
from perfsuite.problems.orders import Move
from perfsuite.problems.written import Written
from perfsuite.settings import CacheMode

ClockKind = Literal["graph", "events", "host", "fake"]


@dataclass(frozen=True)
class Sides:
    """The two functions that are timed in turn, and the source of their inputs."""

    candidate: Callable[..., Any]
    rival: Callable[..., Any]
    make_inputs: Callable[[], Inputs]
    """Returns inputs with new values at every call, on the device that is timed."""
    moves: Moves = "elements"
    """The parts of the inputs that may take each other's places between rounds."""
    integers: Mapping[int, Move] = field(default_factory=dict)
    """The moves of wider integers and truth values, by place among the tensors. The rival must take them."""
    written: Written | None = None
    """The arguments that the calls write; None if they write none. Each is restored before every sample."""
    reset: Callable[[Inputs], Any] | None = None
    """Called before every sample with the inputs of its first call, untimed; None without such a call."""
    calls_per_reset: int | None = None
    """Calls that may follow one `reset`; None for any number."""
    hard: Mapping[str, Callable[[], Inputs]] = field(default_factory=dict)
    """Makes hard inputs of the same shapes, by distribution. They are put in place for some calls that do not count."""
    watch: Watch | None = None
    """Looks behind samples for changes of what both sides share; None if nothing is watched."""


@dataclass(frozen=True)
class TimedCall:
    """Inputs and outputs of one call that was inside the timed region."""

    inputs: Inputs
    candidate_output: Any
    rival_output: Any
    """None if it was not kept: a candidate could find a right answer in memory."""
    inputs_changed: bool = False
    """True if the values of an input have changed."""
    distribution: str | None = None
    """The distribution of hard inputs; None for the case's own."""


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
    """A remark for the record: the reason if this is not the default clock, and what it did otherwise than asked."""
    rotation: int
    """Sets of inputs that are rotated."""
    launches: int
    """Calls in one sample."""
    timer_seconds: float | None = None
    """The part of a sample's time that is the timer's own, which is taken off; None if it is not known."""
    waited_seconds: tuple[float | None, float | None] = (None, None)
    """Host seconds of a call of candidate and rival with the wait for its end; known after `host_seconds`."""
    halves: int = 2
    """Halves of a round: A B and B A, so that each side comes first once. One for long calls, in turn in either order.
    """
    warnings: list[str]
    covered: bool = True
    """False if the inputs of the rotation are so small that a cold call may find some of them in the cache."""

    def setup(self) -> None:
        """Make inputs, buffers and graphs anew, at other addresses and with other values, and warm up.

        Raises CaptureError or SideFailedError.
        """

    def rounds(self, count: int) -> list[Round]:
        """Time `count` paired rounds, each in random order."""

    def timed_calls(self, count: int) -> list[TimedCall]:
        """At most `count` calls of the rounds, drawn in secret while they ran, and all calls on hard inputs."""

    def look_at_more(self, count: int, look: Callable[[Any, Any], Any]) -> list[Any]:
        """Results of `look(candidate's output, rival's output)` for up to `count` further calls of the rounds.

        Empty, the default, if the clock keeps no further calls.
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
        self.sides, self.cache = sides, cache
        self.notes: list[str] = [] if note is None else [note]
        """Remarks for the record."""
        self.rotation = 0
        self.launches = 0
        self.warnings: list[str] = []
        self._order = random.Random(seed)
        self._seconds = 0.0
        self._setups = 0
        self._sets: list[Inputs] = []
        self._settled: bool | None = None

    @property
    def note(self) -> str | None:  # type: ignore[override]
        return "; ".join(self.notes) or None

    @property
    def seconds_spent(self) -> float:
        return self._seconds

    def _most_in_a_sample(self, most: int) -> int:
        """The calls of a sample, bounded by `most`, by the state between calls, and by the sets of written inputs."""
        if self.sides.written is not None:
            most = min(most, len(self._sets))
        return max(1, min(most, self.sides.calls_per_reset or most))

    @property
    def _written_places(self) -> tuple[int, ...]:
        return () if self.sides.written is None else self.sides.written.places

    def _answered(self, result: Any, inputs: Inputs) -> Any:
        """The answer of a call: its result, or all that it wrote."""
        return result if self.sides.written is None else self.sides.written.answer(result, inputs)

    def _rivals_answer(self, inputs: Inputs) -> Any:
        """The rival's answer on these inputs, which it does not change. Raises SideFailedError."""
        if self.sides.reset is not None:
            self.sides.reset(inputs)
        given = inputs if self.sides.written is None else self.sides.written.copied(inputs)
        return self._answered(self._call("rival", given), given)

    def _look(self, side: Side) -> None:
        """Look for changes of what both sides share, behind calls of that side."""
        if self.sides.watch is not None:
            self.sides.watch.after(side)

    def _look_at_names(self) -> None:
        """Look at all names, behind the last call of a batch: statistics and judgement follow, and rest on them."""
        collect_young()
        if self.sides.watch is not None:
            self.sides.watch.batch()

    def _call(self, side: Side, inputs: Inputs) -> Any:
        """The side's result on these inputs. Raises SideFailedError."""
        try:
            return inputs.call(self._function(side))
        except Exception as error:
            raise SideFailedError(side, error) from error

    def _ready(self, side: Side, inputs: Inputs) -> int:
        """Run the forward pass of a side that is timed for its backward alone, untimed; bytes that it keeps for it.

        Raises SideFailedError.
        """
        function = self._function(side)
        if not needs_preparing(function):
            return 0
        try:
            return int(function.prepare(*inputs.args))
        except Exception as error:
            raise SideFailedError(side, error) from error

    def _kept_for_backward(self, inputs: Inputs) -> int:
        """Bytes that a forward pass on these inputs keeps for a backward that is timed alone, of the side with more."""
        most = max(self._ready(side, inputs) for side in SIDES)
        self._forget()
        return most

    def _forget(self) -> None:
        """Free what forward passes keep."""
        for side in SIDES:
            if needs_preparing(function := self._function(side)):
                function.forget()

    def _function(self, side: Side) -> Callable[..., Any]:
        return self.sides.candidate if side == "candidate" else self.sides.rival
