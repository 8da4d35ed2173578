"""Keeps other runs, and other workers of this run, off the cards that are measured on.

Where a run has more workers than cards, the workers of a card take turns: they set up, check and judge side by side,
and one at a time times. A test that does not use `perf`, or that measures by itself, has its card for itself.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path

import pytest

from perfsuite.device import turns
from perfsuite.device.locks import CardBusy, claim, hold, lock_path
from perfsuite.outcome import Reason
from perfsuite.pytest_plugin import xdist
from perfsuite.pytest_plugin.outcome import Unmeasured
from perfsuite.pytest_plugin.run import RUN, Run

TURNS_VARIABLE = "PERFSUITE_TURNS"
"""Set in a process that measures a suspect for a worker that takes turns, to "processes:path of the lock"."""
MEASURE_THEMSELVES = frozenset({"benchmark", "gpus"})
"""Fixtures of tests that have their card for themselves."""
_HELD = pytest.StashKey[ExitStack]()


def hold_for_run(run: Run) -> None:
    """Hold the cards of this run until it ends; UsageError if another run keeps them too long."""
    cards = run.devices.cards
    mine = cards if xdist.is_controller(run.config) else cards[:1]
    reporter = run.config.pluginmanager.get_plugin("terminalreporter")

    def tell(sentence: str) -> None:
        if reporter:
            reporter.write_line(f"perfsuite: {sentence}")

    try:
        run.held.enter_context(hold((card.uuid for card in mine), "run", tell=tell))
    except CardBusy as error:
        raise pytest.UsageError(str(error)) from None


def hold_for_test(item: pytest.Item) -> None:
    """Hold the cards of a test until `release`; other workers wait for them, or time in turn with it.

    A plugin that runs the test again does so within one protocol, so an earlier attempt may still hold them.
    """
    release(item)
    run, names = item.config.stash[RUN], set(getattr(item, "fixturenames", ()))
    held = item.stash.setdefault(_HELD, ExitStack())
    try:
        if takes_turns(run):
            mine = turns.shared() or _turns(run)
            mine.begin()
            held.callback(mine.end)
            if "perf" not in names or MEASURE_THEMSELVES & names:
                mine.alone(stay=True)
        elif not run.fresh:
            cards = run.devices.cards if "gpus" in names else run.devices.cards[:1]
            held.enter_context(hold((card.uuid for card in cards), "case"))
    except CardBusy as error:
        raise Unmeasured(Reason.SHARED_DEVICE, str(error)) from None


def release(item: pytest.Item) -> None:
    """Free the cards that a test held."""
    if _HELD in item.stash:
        item.stash[_HELD].close()


def takes_turns(run: Run) -> bool:
    """True if other processes of this run use this one's card, and candidates run in the processes of the run."""
    if run.fresh:
        return TURNS_VARIABLE in os.environ
    return xdist.workers_of_a_card(run.config) > 1 and not run.options.isolate


def turns_for_others() -> dict[str, str]:
    """The variables by which a process that measures a suspect for this one takes turns as well."""
    mine = turns.shared()
    return {} if mine is None or not mine.in_process else {TURNS_VARIABLE: f"{mine.processes}:{mine.path}"}


def _turns(run: Run) -> turns.Turns:
    """Begin to share this process's card: a worker has one card."""
    if run.fresh:
        count, _, place = os.environ[TURNS_VARIABLE].partition(":")
        path, processes = Path(place), int(count)
    else:
        path, processes = lock_path(run.card.uuid, "turns"), xdist.workers_of_a_card(run.config)
    claim(path)
    turns.share(path, processes, lambda: 1, in_process=True)
    run.held.callback(turns.leave)
    shared = turns.shared()
    assert shared is not None
    return shared
