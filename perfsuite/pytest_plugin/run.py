"""The state of one pytest run: its options, its cards, and the results of its tests."""

from __future__ import annotations

import os
from contextlib import ExitStack
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pytest

from perfsuite.pytest_plugin import TARGETS
from perfsuite.pytest_plugin.environ import found_variables
from perfsuite.pytest_plugin.options import PORTABLE, Options, build_options

if TYPE_CHECKING:
    from pathlib import Path

    from perfsuite.device.cards import Device, Devices
    from perfsuite.problems.base import Problem
    from perfsuite.pytest_plugin.targets import Targets
    from perfsuite.record.case import Case
    from perfsuite.record.journal import Journal
    from perfsuite.record.run_lines import Part
    from perfsuite.settings import Settings

FRESH_VARIABLE = "PERFSUITE_FRESH"
"""Set in a process that measures one suspect for another run, to the number of the test's comparison (from 0)."""


class Run:
    """The state of a run in one process: a worker's, the controller's, or the only one.

    It is a plugin too: the hooks for reports do not receive the config, in which it is stashed.
    """

    def __init__(self, config: pytest.Config, options: Options, targets: Targets | None) -> None:
        self.config, self.options = config, options
        self.targets = targets
        """The overrides of perf_targets.toml, if that file exists."""
        self.worker = hasattr(config, "workerinput")
        """True in an xdist worker."""
        self.suspect = _number(os.environ.get(FRESH_VARIABLE))
        """In a process that measures one suspect again: the number of the test's comparison; else None."""
        self.fresh = self.suspect is not None
        """True in such a process; its parent waits and holds the card's locks."""
        self.collects_only = bool(config.getoption("collectonly"))
        self.planned = 0
        """Timed cases of the whole run, over which the error of the verdicts is divided."""
        self.cases: list[Case] = []
        """The measured cases; in the controller, those of all workers."""
        self.verdicts: set[str] = set()
        """Verdicts for which tests failed; xfail tests do not count."""
        self.on_device = False
        """True if any test ran on the GPU."""
        self.failures = 0
        """Failed tests and errors that are neither a verdict nor a missing device."""
        self.unmeasured: list[tuple[str, str]] = []
        """(reason code, sentence) of gated tests that could not run."""
        self.skipped = 0
        """Gated tests that were skipped."""
        self.complaints: list[str] = []
        """Faults of the run as a whole, such as overrides that fit no test."""
        self.held = ExitStack()
        """The locks of the cards."""
        self.journal: Journal | None = None
        self.previous: Path | None = None
        """The record of the run before this one, for the table's column `last`."""
        self.notes: list[str] = []
        """Sentences for the end of the run that are no faults."""
        self.tests = 0
        """Tests that the run collected, of its part of the suite."""
        self.elsewhere = ""
        """The workers that measure instead of this process, for the header; empty if it measures itself."""
        self.part: Part | None = None
        """The part of the suite that runs; in the controller, as a worker found it."""
        self.variables = found_variables(os.environ)
        """Variables of the environment that can change what is judged. The tests run later, and may change them."""

    @cached_property
    def devices(self) -> Devices:
        """The cards that this process may use."""
        found: Devices = self.config.hook.pytest_perfsuite_devices(config=self.config)
        return found

    @cached_property
    def cannot_measure(self) -> tuple[str, str] | None:
        """(reason code, sentence) why no gate can run on the GPU, or None."""
        from perfsuite.outcome import Reason

        missing = self.devices.missing
        if missing:
            return Reason.NO_DEVICE.value, f"--gpu asks for a GPU, but {missing}"
        sentence = self.config.hook.pytest_perfsuite_device_check(config=self.config)
        return (Reason.PORTABLE_BUILD.value, f"--gpu asks for a GPU, but {sentence}") if sentence else None

    @property
    def card(self) -> Device:
        """The card that this process measures on."""
        return self.devices.cards[0]

    def settings(self) -> Settings:
        """The instrument's settings."""
        from dataclasses import replace

        from perfsuite.pytest_plugin.xdist import workers_of_a_card

        settings = self.options.settings(cases=self.planned)
        if workers_of_a_card(self.config) > 1:  # one of them times while the others are idle
            settings = replace(settings, allow_shared=True)
        if settings.calibration is None and self.options.gpu and not self.devices.missing:
            from perfsuite.verdict.noise import find_calibration

            settings = replace(settings, calibration=find_calibration(self.config.rootpath, self.card.name))
        return settings

    def override(self, marker: str, value: Any, nodeid: str) -> Any:
        """A marker's value for a test, with the overrides of perf_targets.toml for the card in use."""
        if self.targets is None:
            return value
        model = PORTABLE if self.options.portable else self.card.name
        return self.targets.apply(marker, value, nodeid=nodeid, model=model)

    def too_long(self, problem: Problem) -> str | None:
        """A sentence why the portable backend leaves this problem out, or None."""
        if not self.options.portable or problem.flops is None:
            return None
        most = self.settings().portable_max_flops
        cost = f"{problem.family} {problem.name} costs {problem.flops:.3g} FLOPs"
        return f"{cost}; the portable backend stops at {most:.3g}" if problem.flops > most else None

    @cached_property
    def fingerprint(self) -> dict[str, Any]:
        """The environment, for the record."""
        from perfsuite.record.fingerprint import fingerprint

        device = "cpu" if self.options.portable else "cuda"
        facts = fingerprint(self.config.rootpath, device=device, environ=self.variables)
        self.config.hook.pytest_perfsuite_fingerprint(config=self.config, fingerprint=facts)
        return facts

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self.failures += report.failed

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a report, and put its cases on record."""
        if report.outcome == "rerun":  # of pytest-rerunfailures: the last attempt counts, and repeats a failed gate
            return
        for line in getattr(report, "perfsuite_cases", ()):
            from perfsuite.record.case import Case

            case = Case.of_json(line, report.nodeid)
            self.cases.append(case)
            self._record(case)
        self.skipped += getattr(report, "perfsuite_skipped", False)
        unmeasured = getattr(report, "perfsuite_unmeasured", None)
        self.on_device |= unmeasured is None and getattr(report, "perfsuite_on_device", False)
        if unmeasured is not None:
            self.unmeasured.append((unmeasured[0], unmeasured[1]))
        elif report.failed:
            verdict = getattr(report, "perfsuite_verdict", None)
            if verdict is None:
                self.failures += 1
            else:
                self.verdicts.add(verdict)

    def _record(self, case: Case) -> None:
        """Put a case on record. If that fails, the run goes on without a record and ends with a fault."""
        if self.journal is None:
            return
        try:
            self.journal.add(case)
        except OSError as error:
            kept = self.journal.abandon()
            where = f"; the cases so far are in {kept}" if kept else ""
            self.complaints.append(f"the record cannot be written: {error}{where}")
            self.journal = None


def _number(said: str | None) -> int | None:
    return None if said is None else int(said) if said.isdecimal() else 0


RUN = pytest.StashKey[Run]()


def start(config: pytest.Config) -> Run:
    """Make the run from the options; UsageError if an option or perf_targets.toml is wrong."""
    options = build_options(config)
    path = options.targets or config.rootpath / TARGETS
    targets = None
    if path.is_file():
        from perfsuite.pytest_plugin.targets import load_targets

        targets = load_targets(path)
    run = config.stash[RUN] = Run(config, options, targets)
    if options.gpu:
        from perfsuite.pytest_plugin.xdist import choose_card

        choose_card(config)
    return run
