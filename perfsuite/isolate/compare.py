"""Judges a case whose candidate runs in a separate process."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from perfsuite.case.ask import Ask
from perfsuite.case.comparison import Comparison
from perfsuite.case.run import run_case
from perfsuite.case.writing import effects_of
from perfsuite.clock.base import CaptureError, Clock, SideFailedError, Sides
from perfsuite.clock.processor import pinned_threads
from perfsuite.device import turns
from perfsuite.isolate import ahead
from perfsuite.isolate.alone import Alone, agreed, alone, rival_seconds
from perfsuite.isolate.clock import IsolatedClock
from perfsuite.isolate.remote import IsolationError, Remote
from perfsuite.isolate.room import settle_if_short
from perfsuite.isolate.worker import SHARE_OF_MEMORY
from perfsuite.problems.base import Problem
from perfsuite.settings import Settings


def compare_isolated(ask: Ask, seconds: float) -> Comparison:
    """Judge a case whose candidate runs in a worker process; the parent makes the inputs, checks and times.

    seconds: the longest time of one request, which is one call or the calls of one sample.
    If the worker ends (an illegal access, an abort, a hang, exhausted memory), only this case is affected.
    Raises IsolationError if the candidate cannot be imported in another process.
    """
    with pinned_threads(ask.settings.device):  # before the first process starts: all have the same number of threads
        return _compared(ask, seconds)


def _compared(ask: Ask, seconds: float) -> Comparison:
    settle_if_short(ask.settings.device)
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGESIZE")
    room = int(SHARE_OF_MEMORY * turns.memory_share() * free)
    limits: dict[str, Any] = {"device": ask.settings.device, "seconds": seconds, "room": room}
    remote = Remote(ask.candidate, **limits)
    rival = _rival_apart(ask, limits)
    twin = _rival_apart(ask, limits) if ask.settings.device == "cpu" else None
    if rival is not None and ask.settings.device == "cuda":
        ahead.begin(trusted=True, device="cuda")
    seen: list[Sides] = []

    def open_clock(sides: Sides, settings: Settings) -> Clock:
        seen.append(sides)
        ahead.quiet()
        return _opened(sides, remote, settings, rival)

    def pair() -> tuple[float, float]:
        clock, twins = IsolatedClock(seen[0], remote, ask.settings, rival), _of_twins(ask, rival, twin)
        beside, sample = rival_seconds(clock)
        remote.close()
        ahead.quiet()
        twins.launches = clock.launches
        return beside, rival_seconds(twins, pause=max(0.0, sample - beside * clock.launches))[0]

    try:
        before = _before(ask, rival, twin)
        # No `remeasure`: a fresh process would measure the candidate without isolation.
        found = run_case(replace(ask, candidate=remote, remeasure=None), open_clock=open_clock)
        if before is not None and seen:
            with contextlib.suppress(SideFailedError):
                found = agreed(found, before, pair)
        return found if found.clock_note else replace(found, clock_note=f"isolated; {remote.sandbox}")
    finally:
        for one in (remote, rival, twin):
            if one is not None:
                one.close()


def _opened(sides: Sides, remote: Remote, settings: Settings, rival: Remote | None) -> Clock:
    """The clock of an isolated case, set up once: on a card by events, if its calls can be captured."""
    reason = None
    if settings.device == "cuda":
        from perfsuite.isolate.card_clock import IsolatedCardClock
        from perfsuite.isolate.card_fit import why_not

        try:
            reason = why_not(sides, settings, remote, rival)
        except RuntimeError as error:  # a process does not start; the host's clock says whose
            reason = str(error)
        ahead.quiet()
        if reason is None and rival is not None:
            on_card = IsolatedCardClock(sides, remote, settings, rival)
            try:
                on_card.setup()
                return on_card
            except CaptureError as error:
                reason = str(error)
                on_card.close()
            except BaseException:
                on_card.close()
                raise
        rival = None
    clock = IsolatedClock(sides, remote, settings, rival)
    clock.notes += [] if reason is None else [f"not timed by events on the card: {reason}"]
    clock.setup()
    return clock


def _before(ask: Ask, rival: Remote | None, twin: Remote | None) -> Alone | None:
    """The rival's time before the candidate's process starts; None without processes of its own, or if it fails.

    In this process it would not be interrupted by its twin as it is by the candidate.
    """
    if rival is None or twin is None:
        return None
    ahead.quiet()
    try:
        return alone(_of_twins(ask, rival, twin))
    except Exception:  # whatever the user's functions raise; the case itself says so
        return None
    finally:
        twin.close()
        ahead.quiet()


def _of_twins(ask: Ask, rival: Remote | None, twin: Remote | None) -> IsolatedClock:
    """A clock of the rival against itself, in a second process."""
    assert ask.rival is not None
    here = ask.problem.rival(ask.rival) if isinstance(ask.rival, str) else ask.problem.called(ask.rival)
    generator = ask.settings.generator()
    effects = effects_of(ask.problem, here, generator)
    sides = Sides(
        here,
        here,
        partial(ask.problem.inputs, generator, distribution=ask.settings.distribution),
        moves="elements" if ask.problem.exchangeable else "sets",
        written=effects.written,
        reset=effects.reset,
        calls_per_reset=effects.calls_per_reset,
    )
    return IsolatedClock(sides, twin, ask.settings, rival)


@dataclass(frozen=True)
class NamedRival:
    """A rival that another process finds by its name."""

    problem: Problem
    name: str

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _found(self)(*args, **kwargs)


_last: list[tuple[NamedRival, Callable[..., Any]]] = []


def _found(rival: NamedRival) -> Callable[..., Any]:
    """The function of that rival, looked up once."""
    if not _last or _last[0][0] is not rival:
        _last[:] = [(rival, rival.problem.rival(rival.name))]
    return _last[0][1]


def _rival_apart(ask: Ask, limits: dict[str, Any]) -> Remote | None:
    """The rival in a process of its own, as the candidate is; None if it cannot be sent to a process."""
    if ask.rival is None or not ask.timed:
        return None
    rival = NamedRival(ask.problem, ask.rival) if isinstance(ask.rival, str) else ask.rival
    try:
        return Remote(rival, trusted=True, **limits)
    except IsolationError:
        return None
