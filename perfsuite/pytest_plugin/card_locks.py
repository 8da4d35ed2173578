"""Keeps other runs, and other workers of this run, off the cards that are measured on."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from perfsuite.device.locks import CardBusy, hold
from perfsuite.outcome import Reason
from perfsuite.pytest_plugin import xdist
from perfsuite.pytest_plugin.outcome import Unmeasured
from perfsuite.pytest_plugin.run import RUN, Run

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
    """Hold the cards of a test until `release`; other workers wait for them.

    A plugin that runs the test again does so within one protocol, so an earlier attempt may still hold them.
    """
    release(item)
    cards = item.config.stash[RUN].devices.cards
    mine = cards if "gpus" in getattr(item, "fixturenames", ()) else cards[:1]
    try:
        item.stash.setdefault(_HELD, ExitStack()).enter_context(hold((card.uuid for card in mine), "case"))
    except CardBusy as error:
        raise Unmeasured(Reason.SHARED_DEVICE, str(error)) from None


def release(item: pytest.Item) -> None:
    """Free the cards that a test held."""
    if _HELD in item.stash:
        item.stash[_HELD].close()
