"""The pytest plugin of a process that measures a build for a comparison: `pytest -p perfsuite.history.measure_build`.

It finds modules in the build before all other places. PYTHONPATH would not do: pytest puts the folders of tests before
it, and a project may keep its package there, so two builds would be one. The record has two commits: that of the
kernels, and under "suite" that of the checkout whose suite measured them. PYTEST_DONT_REWRITE: nothing here asserts.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from perfsuite.case.ask import Ask
    from perfsuite.case.comparison import Comparison

VARIABLE = "PERFSUITE_FRONT"
"""The folder of the build."""
SUITE_VARIABLE = "PERFSUITE_SUITE"
"""The commit of the suite, with "-dirty" at its end if the checkout has changes."""


class Front:
    """Finds top-level modules in the build, and leaves all others to Python."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The module's place in the build, or None. Tests are those of the checkout."""
        if name in ("conftest", "tests", "test") or name.startswith("test_") or name.endswith("_test"):
            return None
        return PathFinder.find_spec(name, [self.folder]) if path is None else None


def pytest_addoption() -> None:
    """Look in the build first, from here on: pytest calls this when it takes the plugin, before it looks for others."""
    if VARIABLE in os.environ:
        sys.meta_path.insert(0, Front(os.environ[VARIABLE]))


def pytest_perfsuite_fingerprint(fingerprint: dict[str, Any]) -> None:
    """Add the commit of the suite."""
    fingerprint["suite"] = os.environ.get(SUITE_VARIABLE) or None


@pytest.hookimpl(tryfirst=True)
def pytest_perfsuite_compare(config: pytest.Config, ask: Ask) -> Comparison | None:
    """Measure a timed case by the plan for comparisons; leave checked and isolated cases to the gate."""
    isolate = config.getoption("perf_isolate") or config.getini("perf_isolate")
    if isolate or not ask.timed:
        return None
    from perfsuite.history.sampling import measure

    return measure(ask)
