"""May a test use the device: it is skipped, failed, or let in."""

from __future__ import annotations

import pytest

from perfsuite.outcome import Reason
from perfsuite.pytest_plugin import marks
from perfsuite.pytest_plugin.card_locks import hold_for_test
from perfsuite.pytest_plugin.collection import CONCERNED, DEVICE_FIXTURES, needs_device
from perfsuite.pytest_plugin.marker import MarkerError
from perfsuite.pytest_plugin.outcome import Unmeasured
from perfsuite.pytest_plugin.run import RUN

PORTABLE_FIXTURES = frozenset({"perf"})
"""Fixtures that also work without a GPU, under --perf-portable."""


def require_device(item: pytest.Item) -> None:
    """Skip a test that needs a device if none was asked for; fail it if one was asked for and there is none."""
    try:
        # Once more: marks of a unittest.TestCase, or from a hook, are added after the collection.
        marks.parse_all(item)
    except MarkerError as error:
        pytest.fail(str(error), pytrace=False)
    if not needs_device(item):
        return
    run = item.config.stash[RUN]
    asked = DEVICE_FIXTURES.intersection(getattr(item, "fixturenames", ()))
    if run.options.portable and asked and asked <= PORTABLE_FIXTURES:
        return
    admit(item)
    if not run.fresh:
        hold_for_test(item)


def admit(item: pytest.Item) -> None:
    """Let the test pass to the GPU: skip it without --gpu or on a card that is too small, fail it without a card."""
    run = item.config.stash[RUN]
    item.stash[CONCERNED] = True  # also if a fixture is asked for at run time, by getfixturevalue
    if not run.options.gpu:
        pytest.skip("needs a GPU: run pytest --gpu")
    if trouble := run.cannot_measure:
        raise Unmeasured(*trouble)
    for mark in item.iter_markers("gpu"):
        if lack := marks.parse(mark).lack(run.card):
            pytest.skip(lack)


def admit_to_perf(item: pytest.Item) -> None:
    """The same for the fixture `perf`, which on the portable backend needs torch alone."""
    if not item.config.stash[RUN].options.portable:
        admit(item)
        return
    from importlib.util import find_spec

    if find_spec("torch") is None:
        sentence = "--perf-portable measures with torch, which is not installed: pip install 'perfsuite[torch]'"
        raise Unmeasured(Reason.NO_DEVICE, sentence)
