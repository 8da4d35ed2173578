"""Chooses the clock of a case: the best one that its sides allow."""

from __future__ import annotations

from perfsuite.clock.base import CallingClock, CaptureError, Clock, Sides
from perfsuite.problems.written import Written
from perfsuite.settings import Settings


def open_clock(sides: Sides, settings: Settings) -> Clock:
    """A clock, set up once. Raises SideFailedError; raises CaptureError if the settings demand the graph clock."""
    if settings.device == "cpu" or settings.clock == "host":
        from perfsuite.clock.host import HostClock

        note = None if settings.device == "cpu" else "asked for: times include launch and wait"
        return _set_up(HostClock, sides, settings, note)

    from perfsuite.clock.events import EventsClock
    from perfsuite.clock.graph import GraphClock

    if settings.clock == "events":
        return _set_up(EventsClock, sides, settings, "asked for")
    if sides.reset is not None:
        return _set_up(EventsClock, sides, settings, "reset= prepares state in Python, which no graph can hold")
    try:
        return _set_up(GraphClock, sides, settings)
    except CaptureError as error:
        if settings.clock == "graph":
            raise
        return _set_up(EventsClock, sides, settings, str(error))


def _set_up(kind: type[CallingClock], sides: Sides, settings: Settings, note: str | None = None) -> Clock:
    clock = kind(sides, cache=settings.cache, seed=settings.seed, note=note)
    try:
        clock.setup()
    except CaptureError:
        clock.close()
        raise
    if sides.written is not None:
        clock.notes.append(_about_writes(clock, sides.written))
    return clock


def _about_writes(clock: CallingClock, written: Written) -> str:
    """The way in which written arguments are restored."""
    where = "outside" if clock.cache == "cold" else "in"
    lies = f"the restored values lie {where} the L2" if clock.kind != "host" else "it may be in the cache then"
    return f"{', '.join(written.names)}: written, restored before every sample; {lies}"
