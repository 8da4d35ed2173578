"""A clock with scripted rounds, for tests on any machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from perfsuite.clock.base import Clock, ClockKind, Sides, TimedCall
from perfsuite.clock.rounds import Round
from perfsuite.device.telemetry import Telemetry


class FakeClock(Clock):
    """Returns scripted rounds, and outputs of real calls if it has sides.

    Each call of `rounds` calls `script(setup, count)` once, for the `count` next rounds of a set-up, numbered from 0.
    `setup` raises `failure`.
    """

    kind: ClockKind = "fake"

    def __init__(
        self,
        script: Callable[[int, int], Sequence[Round]],
        *,
        sides: Sides | None = None,
        telemetry: Telemetry | None = None,
        host_seconds: tuple[float | None, float | None] = (None, None),
        failure: Exception | None = None,
        note: str | None = None,
    ) -> None:
        self.script = script
        self.sides = sides
        self.note = note
        self.rotation = 1
        self.launches = 1
        self.warnings: list[str] = []
        self.setups = 0
        self._telemetry = telemetry or Telemetry()
        self._host_seconds = host_seconds
        self._failure = failure
        self._seconds = 0.0

    def setup(self) -> None:
        """See `Clock`. Raises `failure`, if it is given."""
        if self._failure is not None:
            raise self._failure
        self.setups += 1

    def rounds(self, count: int) -> list[Round]:
        """See `Clock`."""
        rounds = [replace(one, setup=self.setups - 1) for one in self.script(self.setups - 1, count)]
        self._seconds += sum(one.candidate_seconds + one.rival_seconds for one in rounds)
        return rounds

    def timed_calls(self, count: int) -> list[TimedCall]:
        """See `Clock`."""
        if self.sides is None:
            return []
        inputs = [self.sides.make_inputs() for _ in range(count)]
        return [TimedCall(one, one.call(self.sides.candidate), one.call(self.sides.rival)) for one in inputs]

    def host_seconds(self) -> tuple[float | None, float | None]:
        """See `Clock`."""
        return self._host_seconds

    def telemetry(self) -> Telemetry:
        """See `Clock`."""
        return self._telemetry

    @property
    def seconds_spent(self) -> float:
        """See `Clock`."""
        return self._seconds

    def close(self) -> None:
        """See `Clock`."""
