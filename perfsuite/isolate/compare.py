"""Judges a case whose candidate runs in a separate process."""

from __future__ import annotations

import os
from dataclasses import replace

from perfsuite.case.ask import Ask
from perfsuite.case.comparison import Comparison
from perfsuite.case.run import run_case
from perfsuite.clock.base import Clock, Sides
from perfsuite.isolate.clock import IsolatedClock
from perfsuite.isolate.remote import Remote
from perfsuite.isolate.worker import SHARE_OF_MEMORY
from perfsuite.settings import Settings


def compare_isolated(ask: Ask, seconds: float) -> Comparison:
    """Judge a case whose candidate runs in a worker process; the parent makes the inputs, checks and times.

    seconds: the longest time of one request, which is one call or the calls of one sample.
    If the worker ends (an illegal access, an abort, a hang, exhausted memory), only this case is affected.
    Raises IsolationError if the candidate cannot be imported in another process.
    """
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGESIZE")
    room = int(SHARE_OF_MEMORY * free)
    remote = Remote(ask.candidate, device=ask.settings.device, seconds=seconds, room=room)

    def open_clock(sides: Sides, settings: Settings) -> Clock:
        clock = IsolatedClock(sides, remote, settings)
        clock.setup()
        return clock

    try:
        # No `remeasure`: a fresh process would measure the candidate without isolation.
        return run_case(replace(ask, candidate=remote, remeasure=None), open_clock=open_clock)
    finally:
        remote.close()
