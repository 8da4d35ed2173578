"""Admits a test to the device, skips it or fails it."""

from __future__ import annotations

import pytest

from perfsuite.outcome import Reason
from perfsuite.pytest_plugin import CONCERNED, DEVICE_FIXTURES, marks, needs_device
from perfsuite.pytest_plugin.card_locks import hold_for_test
from perfsuite.pytest_plugin.marker import MarkerError
from perfsuite.pytest_plugin.outcome import Unmeasured
from perfsuite.pytest_plugin.run import RUN


def require_device(item: pytest.Item) -> None:
    """Check the markers of a test, and admit it to the GPU if it needs one."""
    try:
        # The collection has checked them; marks of a unittest.TestCase, or from a hook, are added later.
        marks.parse_all(item)
    except MarkerError as error:
        pytest.fail(str(error), pytrace=False)
    if not needs_device(item):
        return
    run = item.config.stash[RUN]
    if run.options.portable and DEVICE_FIXTURES.intersection(getattr(item, "fixturenames", ())) == {"perf"}:
        return  # `perf` alone also works without a GPU
    admit(item)
    hold_for_test(item)


def admit(item: pytest.Item) -> None:
    """Let a test use the GPU. It is skipped without --gpu or on a card that is too small, and fails without a card."""
    run = item.config.stash[RUN]
    item.stash[CONCERNED] = True  # a fixture may be requested at run time, by getfixturevalue
    if not run.options.gpu:
        pytest.skip("needs a GPU: run pytest --gpu")
    if trouble := run.cannot_measure:
        raise Unmeasured(*trouble)
    for mark in item.iter_markers("gpu"):
        if lack := marks.parse(mark).lack(run.card):
            pytest.skip(lack)


def admit_to_perf(item: pytest.Item) -> None:
    """Let a test use `perf`; on the portable backend it needs torch alone."""
    if not item.config.stash[RUN].options.portable:
        admit(item)
        return
    from importlib.util import find_spec

    if find_spec("torch") is None:
        sentence = "--perf-portable measures with torch, which is not installed: pip install torch"
        raise Unmeasured(Reason.NO_DEVICE, sentence)
