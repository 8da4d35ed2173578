"""Clocks of a process that shares its card with others of the same run: they work side by side, and time in turns.

To make inputs, to capture and to judge is work, which several processes do at once. Whatever is timed is timed alone:
the trials that choose the calls of a sample, the rounds, and the host's times. Rounds behind a turn of others are
warmed up again.
"""

from __future__ import annotations

from perfsuite.clock.base import TimedCall
from perfsuite.clock.cuda import CudaClock
from perfsuite.clock.events import EventsClock
from perfsuite.clock.graph import GraphClock
from perfsuite.clock.host import HostClock
from perfsuite.clock.rounds import Round
from perfsuite.device import turns


class InTurns(CudaClock):
    """Takes turns for the clock that follows in the order of the classes."""

    _cold = False
    """True if the card has not been warmed up since the last set-up."""

    @property
    def _share(self) -> float:  # type: ignore[override]
        return turns.memory_share()

    def setup(self) -> None:
        turns.beside()
        super().setup()

    def _alone(self) -> None:
        if not self.launches:  # costs and trials follow
            turns.alone()
        super()._alone()

    def _settle(self) -> None:
        self._cold = not turns.is_alone()
        if not self._cold:
            super()._settle()

    def rounds(self, count: int) -> list[Round]:
        cold, self._cold = self._cold or not turns.is_alone(), False
        turns.alone()
        if cold:
            import torch

            with torch.cuda.stream(self._stream):
                self._settle()
        return super().rounds(count)

    def timed_calls(self, count: int) -> list[TimedCall]:
        turns.beside()  # what comes now is not timed
        return super().timed_calls(count)

    def host_seconds(self) -> tuple[float | None, float | None]:
        with turns.timing():
            return super().host_seconds()

    def close(self) -> None:
        super().close()
        turns.beside()


class GraphClockInTurns(InTurns, GraphClock):
    """The graph clock, in turns."""


class EventsClockInTurns(InTurns, EventsClock):
    """The events clock, in turns."""


class HostClockInTurns(HostClock):
    """The host's clock, in turns. Its set-ups are timed throughout."""

    def setup(self) -> None:
        turns.alone()
        super().setup()

    def rounds(self, count: int) -> list[Round]:
        turns.alone()
        return super().rounds(count)

    def timed_calls(self, count: int) -> list[TimedCall]:
        turns.beside()
        return super().timed_calls(count)

    def host_seconds(self) -> tuple[float | None, float | None]:
        with turns.timing():
            return super().host_seconds()

    def close(self) -> None:
        super().close()
        turns.beside()
