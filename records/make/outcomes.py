"""A plugin of pytest that writes which tests have ended, and leaves out those that had ended before.

The variable RECORDS_OUTCOMES names a folder, and RECORDS_PART the file in it that this run writes. Tests that have
ended in a file of the folder are left out. With RECORDS_SHARE=1/3 only every third test is run, from the second on: of
all tests, so that runs that begin at different times share them without overlap.

The variables are taken out of the environment, so that the plugin does nothing in a pytest that this run starts, such
as one that measures a suspect again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

FOLDER, PART, SHARE = "RECORDS_OUTCOMES", "RECORDS_PART", "RECORDS_SHARE"
AGAIN = "RECORDS_FAILED_AGAIN"
"""If set, tests that failed are run once more."""


def read(folder: Path) -> tuple[list[str], dict[str, str]]:
    """All tests of the job in their order, and the outcome of each that has ended: passed, failed or skipped.

    A later line takes the place of an earlier one, and a pass that of a failure.
    """
    every: list[str] = []
    outcomes: dict[str, str] = {}
    for file in sorted(folder.glob("*.outcomes")):
        for line in _lines(file):
            every = line.get("every", every)
            if "test" in line and outcomes.get(line["test"]) != "passed":
                outcomes[line["test"]] = line["outcome"]
    return every, outcomes


def _lines(file: Path) -> Iterator[dict[str, Any]]:
    text = file.read_text(encoding="utf-8")
    for line in text[: text.rfind("\n") + 1].splitlines():  # the last one may have been cut
        yield json.loads(line)


def chosen(tests: Sequence[str], outcomes: dict[str, str], share: str, *, again: bool = False) -> list[str]:
    """The tests of a share, such as "0/2", that have not ended; with `again` also those that failed."""
    number, of = map(int, share.split("/"))
    return [one for one in tests[number::of] if one not in outcomes or (again and outcomes[one] == "failed")]


def outcome_of(phases: dict[str, str]) -> str:
    """Of a test, from its phases. An error outside the test itself is none: the test has not been run."""
    if "failed" in (phases.get("setup"), phases.get("teardown")):
        return "error"
    return phases.get("call", phases.get("setup", "error"))


class Outcomes:
    """The hooks of a run that has a part."""

    def __init__(self, folder: Path, part: str, share: str, *, again: bool) -> None:
        self._folder, self._part, self._share, self._again = folder, part, share, again
        self._phases: dict[str, dict[str, str]] = {}

    def _write(self, line: dict[str, Any]) -> None:
        with (self._folder / f"{self._part}.outcomes").open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Leave out what has ended, and what is another run's."""
        every = [item.nodeid for item in items]
        _, outcomes = read(self._folder)
        self._write({"every": every})
        mine = set(chosen(every, outcomes, self._share, again=self._again))
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in mine])
        items[:] = [item for item in items if item.nodeid in mine]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a test when its last phase has ended."""
        phases = self._phases.setdefault(report.nodeid, {})
        phases[report.when or "call"] = report.outcome
        if report.when == "teardown" and (outcome := outcome_of(self._phases.pop(report.nodeid))) != "error":
            self._write({"test": report.nodeid, "outcome": outcome})


def pytest_configure(config: pytest.Config) -> None:
    """Take the variables, and register the hooks if there are any."""
    folder, part, share, again = (os.environ.pop(name, None) for name in (FOLDER, PART, SHARE, AGAIN))
    if folder and part:
        config.pluginmanager.register(Outcomes(Path(folder), part, share or "0/1", again=again is not None))
