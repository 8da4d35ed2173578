"""A plugin of pytest that writes, as JSON, when the run began, and what each of its processes did and when.

It counts the tests that were called, wherever they ran. The variable PERFSUITE_CASE_TIMES names the file.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

_begun = time.time()
_called: list[tuple[float, float]] = []
_places: dict[str, dict[str, Any]] = {}
"""Card and number of a process -> what it did."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """In the process that runs the test: name the card and the process, also for the process that reports."""
    report = yield
    report.ran_at = (os.environ.get("CUDA_VISIBLE_DEVICES", ""), os.getpid())  # type: ignore[attr-defined]
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note the times of a part of a test."""
    if report.when == "call":
        _called.append((report.start, report.stop))
    card, process = getattr(report, "ran_at", ("", 0))
    place = _places.setdefault(f"{card}:{process}", {"card": card, "tests": [], "first": report.start, "seconds": 0.0})
    place["first"] = min(place["first"], report.start)
    place["last"] = max(place.get("last", 0.0), report.stop)
    place["seconds"] += report.stop - report.start
    if report.when == "call":
        place["tests"].append(report.nodeid)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Write the file, in the process that reports alone."""
    if (file := os.environ.get("PERFSUITE_CASE_TIMES")) and _called and not hasattr(config, "workerinput"):
        first, last = min(start for start, _ in _called), max(stop for _, stop in _called)
        told = {"tests": len(_called), "first": first, "last": last, "begun": _begun, "places": list(_places.values())}
        Path(file).write_text(json.dumps(told))
