"""A pytest plugin that lists the cases of a suite.

    pytest -p perfsuite.pytest_plugin.listing --gpu --perf-record FILE

Every call of `perf` returns at once, with an imaginary card: nothing is computed, checked or timed. The record names
each case as a measured one would.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from perfsuite.case.ask import Ask
    from perfsuite.case.comparison import Comparison
    from perfsuite.device.cards import Devices

CAPABILITY = (99, 0)
"""Higher than any test asks for, so that no test is skipped."""
MEMORY_BYTES = 2**50


@pytest.hookimpl(tryfirst=True)
def pytest_perfsuite_devices() -> Devices:
    """One imaginary card, large and new enough for every test."""
    import os

    from perfsuite.device.cards import Device, Devices

    return Devices((Device(0, "no card", f"GPU-listing-{os.getpid()}", CAPABILITY, MEMORY_BYTES, "0"),), "", None)


@pytest.hookimpl(tryfirst=True)
def pytest_perfsuite_device_check() -> str:
    """No complaint, even if the extension was built without CUDA."""
    return ""


@pytest.hookimpl(tryfirst=True)
def pytest_perfsuite_resource(resource: str) -> float:
    """A number that meets any limit, in place of a measured one."""
    return 0.0 if resource == "synchronises" else 1.0


@pytest.hookimpl(tryfirst=True)
def pytest_perfsuite_side_by_side() -> tuple[float, float]:
    """Equal times, in place of measured ones."""
    return 1.0, 1.0


@pytest.hookimpl(tryfirst=True)
def pytest_perfsuite_compare(ask: Ask) -> Comparison:
    """A comparison that carries the case's name alone."""
    from perfsuite.case.comparison import Comparison
    from perfsuite.case.failures import name_of
    from perfsuite.outcome import Reason, Verdict

    problem = ask.problem
    return Comparison(
        family=problem.family,
        name=problem.name,
        params=dict(problem.params),
        candidate=name_of(ask.candidate),
        rival=name_of(ask.rival) if ask.rival is not None else None,
        verdict=Verdict.MET,
        reason=Reason.CHECKED,
        sentence="listed, not measured",
        target=ask.at_least,
        cache=ask.settings.cache,
    )


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Exit with 0 although a marker may have found its limit broken by the made-up numbers."""
    from perfsuite.outcome import EXIT_MISSED
    from perfsuite.pytest_plugin.run import RUN

    if session.exitstatus == EXIT_MISSED and not session.config.stash[RUN].failures:
        session.exitstatus = pytest.ExitCode.OK
