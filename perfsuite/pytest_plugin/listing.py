"""A pytest plugin that lists the cases of a suite: nothing is computed, checked or timed, and no card is needed.

    pytest -p perfsuite.pytest_plugin.listing --gpu --perf-record FILE

The record names the cases as the record of a measured run does. PYTEST_DONT_REWRITE: nothing here asserts.
"""

from __future__ import annotations

import os

import pytest

from perfsuite.case.ask import Ask
from perfsuite.case.comparison import Comparison, unmeasured
from perfsuite.device.cards import Device, Devices
from perfsuite.outcome import EXIT_MISSED, Reason, Verdict
from perfsuite.pytest_plugin.run import RUN


@pytest.hookimpl(tryfirst=True)
def pytest_perfsuite_devices() -> Devices:
    """One imaginary card, large and new enough for every test."""
    card = Device(0, "no card", f"GPU-listing-{os.getpid()}", (99, 0), memory_bytes=2**50, selector="0")
    return Devices((card,), "", None)


@pytest.hookimpl(tryfirst=True)
def pytest_perfsuite_device_check() -> str:
    """No complaint, even if the extension was built without CUDA."""
    return ""


@pytest.hookimpl(tryfirst=True)
def pytest_perfsuite_resource(resource: str) -> float:
    """A made-up number; only "synchronises" has one that meets every limit."""
    return 0.0 if resource == "synchronises" else 1.0


@pytest.hookimpl(tryfirst=True)
def pytest_perfsuite_side_by_side() -> tuple[float, float]:
    """Equal times, in place of measured ones."""
    return 1.0, 1.0


@pytest.hookimpl(tryfirst=True)
def pytest_perfsuite_compare(ask: Ask) -> Comparison:
    """A comparison without numbers, under the case's name."""
    return unmeasured(ask, Verdict.MET, Reason.CHECKED, "listed, not measured")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Exit with 0 although a marker may have found its limit broken by the made-up numbers."""
    if session.exitstatus == EXIT_MISSED and not session.config.stash[RUN].failures:
        session.exitstatus = pytest.ExitCode.OK
