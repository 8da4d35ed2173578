"""Judges a case whose candidate runs in a separate process."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from perfsuite.case.ask import Ask
from perfsuite.case.comparison import Comparison
from perfsuite.case.run import run_case
from perfsuite.clock.base import Clock, Sides
from perfsuite.isolate.clock import IsolatedClock
from perfsuite.isolate.remote import IsolationError, Remote
from perfsuite.isolate.worker import SHARE_OF_MEMORY
from perfsuite.problems.base import Problem
from perfsuite.settings import Settings


def compare_isolated(ask: Ask, seconds: float) -> Comparison:
    """Judge a case whose candidate runs in a worker process; the parent makes the inputs, checks and times.

    seconds: the longest time of one request, which is one call or the calls of one sample.
    If the worker ends (an illegal access, an abort, a hang, exhausted memory), only this case is affected.
    Raises IsolationError if the candidate cannot be imported in another process.
    """
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGESIZE")
    room = int(SHARE_OF_MEMORY * free)
    limits: dict[str, Any] = {"device": ask.settings.device, "seconds": seconds, "room": room}
    remote = Remote(ask.candidate, **limits)
    rival = _rival_apart(ask, limits)

    def open_clock(sides: Sides, settings: Settings) -> Clock:
        clock = IsolatedClock(sides, remote, settings, rival)
        clock.setup()
        return clock

    try:
        # No `remeasure`: a fresh process would measure the candidate without isolation.
        found = run_case(replace(ask, candidate=remote, remeasure=None), open_clock=open_clock)
        return found if found.clock_note else replace(found, clock_note=f"isolated; {remote.sandbox}")
    finally:
        remote.close()
        if rival is not None:
            rival.close()


@dataclass(frozen=True)
class NamedRival:
    """A rival that another process finds by its name."""

    problem: Problem
    name: str

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _found(self)(*args, **kwargs)


_functions: dict[int, Callable[..., Any]] = {}


def _found(rival: NamedRival) -> Callable[..., Any]:
    """The function of that rival, looked up once in a process."""
    if id(rival) not in _functions:
        _functions[id(rival)] = rival.problem.rival(rival.name)
    return _functions[id(rival)]


def _rival_apart(ask: Ask, limits: dict[str, Any]) -> Remote | None:
    """The rival in a process of its own, as the candidate is; None on a GPU, or if it cannot be sent to a process."""
    if ask.rival is None or not ask.timed or ask.settings.device != "cpu":
        return None
    rival = NamedRival(ask.problem, ask.rival) if isinstance(ask.rival, str) else ask.rival
    try:
        return Remote(rival, trusted=True, **limits)
    except IsolationError:
        return None
