"""Chooses the clock of a case: the best one that its sides allow."""

from __future__ import annotations

from perfsuite.clock.base import CallingClock, CaptureError, Clock, Sides
from perfsuite.device import turns
from perfsuite.problems.written import Written
from perfsuite.settings import Settings


def open_clock(sides: Sides, settings: Settings) -> Clock:
    """A clock, set up once. Raises SideFailedError; raises CaptureError if the settings demand the graph clock."""
    if settings.device == "cpu":
        from perfsuite.clock.host import HostClock

        return _set_up(HostClock, sides, settings)

    graph, events, host = _kinds()
    if settings.clock == "host":
        return _set_up(host, sides, settings, "asked for: times include launch and wait")
    if settings.clock == "events":
        return _set_up(events, sides, settings, "asked for")
    if sides.reset is not None:
        return _set_up(events, sides, settings, "reset= prepares state in Python, which no graph can hold")
    try:
        return _set_up(graph, sides, settings)
    except CaptureError as error:
        if settings.clock == "graph":
            raise
        return _set_up(events, sides, settings, str(error))


def _kinds() -> tuple[type[CallingClock], type[CallingClock], type[CallingClock]]:
    """The graph clock, the events clock and the host's, of a process that has its card for itself or shares it."""
    if turns.in_process():
        from perfsuite.clock.in_turns import EventsClockInTurns, GraphClockInTurns, HostClockInTurns

        return GraphClockInTurns, EventsClockInTurns, HostClockInTurns
    from perfsuite.clock.events import EventsClock
    from perfsuite.clock.graph import GraphClock
    from perfsuite.clock.host import HostClock

    return GraphClock, EventsClock, HostClock


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
