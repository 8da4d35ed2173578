"""A plugin of pytest that writes when the first test was called and when the last one ended, as JSON.

It counts the tests that were called, wherever they ran. The variable PERFSUITE_CASE_TIMES names the file.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

_called: list[tuple[float, float]] = []


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note the time of a call."""
    if report.when == "call":
        _called.append((report.start, report.stop))


def pytest_unconfigure() -> None:
    """Write the file."""
    if (file := os.environ.get("PERFSUITE_CASE_TIMES")) and _called:
        first, last = min(start for start, _ in _called), max(stop for _, stop in _called)
        Path(file).write_text(json.dumps({"tests": len(_called), "first": first, "last": last}))
