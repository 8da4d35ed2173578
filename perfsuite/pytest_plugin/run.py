"""One pytest run: its options, its cards, the cases it measured, and what all of them come to."""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from perfsuite.pytest_plugin import workers
from perfsuite.pytest_plugin.options import DEFAULT_TARGETS, PORTABLE, Options, build_options

if TYPE_CHECKING:
    from pathlib import Path

    from perfsuite.device.cards import Device, Devices
    from perfsuite.problems.base import Problem
    from perfsuite.pytest_plugin.targets import Targets
    from perfsuite.record.case import Case
    from perfsuite.record.store import Journal
    from perfsuite.settings import Settings

NO_DEVICE, PORTABLE_BUILD, NOTHING_COLLECTED = "no-device", "portable-build", "nothing-collected"
_OWN_CODES = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED)


class Run:
    """The state of a run in one process: a worker's, the controller's, or the only one."""

    def __init__(self, config: pytest.Config, options: Options, targets: Targets | None) -> None:
        self.config, self.options = config, options
        self.targets = targets
        """The overrides of perf_targets.toml, where there is one."""
        self.planned = 0
        """Timed cases of the whole run, over which the error of the verdicts is shared out."""
        self.cases: list[Case] = []
        """What was measured, as record lines; in the controller, by all workers."""
        self.verdicts: set[str] = set()
        """Verdicts for which tests failed; one that pytest was told to expect (xfail) is not among them."""
        self.on_device = False
        """Whether any test ran on the GPU."""
        self.failures = 0
        """Failed tests and errors that are not a verdict and not a missing device."""
        self.unmeasured: list[tuple[str, str]] = []
        """(reason code, sentence) of gated tests that could not run."""
        self.skipped = 0
        """Gated tests that were skipped."""
        self.complaints: list[str] = []
        """What is wrong with the run as a whole, such as overrides that name no test."""
        self.held = ExitStack()
        """The locks of the cards."""
        self.journal: Journal | None = None
        self._devices: Devices | None = None
        self._check: tuple[str, str] | bool | None = False
        self._fingerprint: dict[str, Any] | None = None

    @property
    def controller(self) -> bool:
        """Whether this process only gathers what workers measure."""
        return workers.is_controller(self.config)

    @property
    def worker(self) -> bool:
        """Whether this process is an xdist worker."""
        return hasattr(self.config, "workerinput")

    def devices(self) -> Devices:
        """The cards that this process may use, asked once."""
        if self._devices is None:
            self._devices = self.config.hook.pytest_perfsuite_devices(config=self.config)
            assert self._devices is not None
        return self._devices

    def cannot_measure(self) -> tuple[str, str] | None:
        """(reason code, sentence) why no gate can run on the GPU, or None."""
        if isinstance(self._check, bool):
            self._check = self._look()
        return self._check

    def _look(self) -> tuple[str, str] | None:
        missing = self.devices().missing
        if missing:
            return NO_DEVICE, f"--gpu asks for a GPU, but {missing}"
        sentence = self.config.hook.pytest_perfsuite_device_check(config=self.config)
        return (PORTABLE_BUILD, f"--gpu asks for a GPU, but {sentence}") if sentence else None

    @property
    def card(self) -> Device:
        """The card that this process measures on."""
        return self.devices().cards[0]

    @property
    def model(self) -> str:
        """Under which name perf_targets.toml knows what is measured on."""
        return PORTABLE if self.options.portable else self.card.name

    def tell(self, sentence: str) -> None:
        """Say something in the terminal before the tests begin."""
        if reporter := self.config.pluginmanager.get_plugin("terminalreporter"):
            reporter.write_line(f"perfsuite: {sentence}")

    def settings(self) -> Settings:
        """How the instrument is to measure."""
        from dataclasses import replace

        settings = self.options.settings(cases=self.planned)
        if self.takes_turns and not settings.allow_shared:
            # The other processes on the card are workers of this run, and the case's lock keeps them idle.
            settings = replace(settings, allow_shared=True)
        if settings.calibration is None and self.options.gpu and not self.devices().missing:
            from perfsuite.verdict.noise import find_calibration

            settings = replace(settings, calibration=find_calibration(self.config.rootpath, self.card.name))
        return settings

    def override(self, marker: str, value: Any, nodeid: str) -> Any:
        """A marker's value for a test, with what perf_targets.toml says for the card in use."""
        return value if self.targets is None else self.targets.apply(marker, value, nodeid=nodeid, model=self.model)

    @property
    def fresh(self) -> bool:
        """Whether this run only measures a suspect of another, which keeps the card's locks meanwhile."""
        return FRESH_VARIABLE in os.environ

    @property
    def takes_turns(self) -> bool:
        """Whether workers of this run share a card: there are more of them than cards on the host."""
        selectors = getattr(self.config, "workerinput", {}).get("perfsuite_selectors")
        return selectors is not None and workers.workers_in(self.config) > len(selectors)

    def too_long(self, problem: Problem) -> str | None:
        """Why the portable backend leaves this problem out, or None."""
        if not self.options.portable or problem.flops is None:
            return None
        most = self.settings().portable_max_flops
        if problem.flops <= most:
            return None
        return (
            f"{problem.family} {problem.name} costs {problem.flops:.3g} FLOPs; the portable backend stops at {most:.3g}"
        )

    def fingerprint(self) -> dict[str, Any]:
        """The environment, for the record; looked up once."""
        if self._fingerprint is None:
            from perfsuite import __version__
            from perfsuite.record.fingerprint import fingerprint
            from perfsuite.settings import HARNESS

            device = "cpu" if self.options.portable else "cuda"
            facts = {"harness": HARNESS, "perfsuite": __version__}
            facts |= fingerprint(self.config.rootpath, device=device)
            self.config.hook.pytest_perfsuite_fingerprint(config=self.config, fingerprint=facts)
            self._fingerprint = facts
        return self._fingerprint

    def take(self, report: pytest.TestReport) -> None:
        """Count a finished report, and put its cases on record."""
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
        """Put a case on record. Where the disk does not take it the run goes on without, and does not end well."""
        if self.journal is None:
            return
        try:
            self.journal.add(case)
        except OSError as error:
            kept = self.journal.abandon()
            self.complaints.append(
                f"the record cannot be written: {error}{f'; what it has is in {kept}' if kept else ''}"
            )
            self.journal = None

    def exit_code(self, given: int) -> int:
        """What the process returns; pytest's own codes for its own troubles stay as they are."""
        from perfsuite import outcome

        if given not in _OWN_CODES or self.config.getoption("collectonly"):
            return given
        if self.failures or self.verdicts & {"MISSED", "WRONG"}:
            return given or outcome.EXIT_MISSED
        if self.complaints:
            return int(pytest.ExitCode.USAGE_ERROR)
        if not self.options.gating:
            return given
        if "UNDECIDED" in self.verdicts:
            return outcome.EXIT_MISSED if self.unmeasured else outcome.EXIT_UNDECIDED
        if not self.cases and not self.on_device:
            return outcome.EXIT_NOTHING_MEASURED
        return given

    def why_nothing(self) -> tuple[str, str]:
        """(reason code, sentence) for a gated run without a case."""
        if self.unmeasured:
            return self.unmeasured[0]
        flag = "--gpu" if self.options.gpu else "--perf-portable"
        if self.skipped:
            return NOTHING_COLLECTED, f"{flag} asks for gates, but all gated tests ({self.skipped}) were skipped"
        return NOTHING_COLLECTED, f"{flag} asks for gates, but no test that calls perf() was run"


RUN = pytest.StashKey[Run]()
FRESH_VARIABLE = "PERFSUITE_FRESH"
"""Set in a process that only measures a suspect for another one."""
CONCERNED = pytest.StashKey[bool]()
HELD = pytest.StashKey[ExitStack]()
DEVICE_FIXTURES = frozenset({"perf", "gpu", "gpu_memory", "gpu_rng", "gpus"})
PERF_MARKERS = (
    "correctness",
    "perf_target",
    "memory_target",
    "launches",
    "no_sync",
    "roofline_target",
    "alignment",
    "regression",
)
OUR_MARKERS = frozenset({"gpu", *PERF_MARKERS})


def concerns(item: pytest.Item) -> bool:
    """Whether a test has one of our markers or asks for one of our fixtures."""
    if CONCERNED not in item.stash:
        asked = not DEVICE_FIXTURES.isdisjoint(getattr(item, "fixturenames", ()))
        item.stash[CONCERNED] = asked or any(mark.name in OUR_MARKERS for mark in item.iter_markers())
    return item.stash[CONCERNED]


def release(item: pytest.Item) -> None:
    """Free the cards that a test held."""
    if HELD in item.stash:
        item.stash[HELD].close()


def start(config: pytest.Config) -> Run:
    """Make the run's state from the options; UsageError where one of them, or perf_targets.toml, is wrong."""
    options = build_options(config)
    path = options.targets or config.rootpath / DEFAULT_TARGETS
    targets = None
    if path.is_file():
        from perfsuite.pytest_plugin.targets import load_targets

        targets = load_targets(path)
    run = Run(config, options, targets)
    config.stash[RUN] = run
    if options.gpu:
        _place(run)
    return run


def _place(run: Run) -> None:
    """Choose this worker's card before anything touches CUDA."""
    workers.pin_order(os.environ)
    index = workers.worker_index(os.environ) if run.worker else None
    if index is not None:
        briefing = getattr(run.config, "workerinput", {})
        workers.take_card(index, os.environ, briefing.get("perfsuite_selectors", []))


def brief_worker(run: Run, workerinput: dict[str, Any]) -> None:
    """Tell a worker which cards there are, before it starts."""
    if run.options.gpu:
        workerinput["perfsuite_selectors"] = [card.selector for card in run.devices().cards]


def debrief_worker(run: Run, output: dict[str, Any] | None) -> None:
    """Take over what a worker had to complain of; every worker collects the same tests, so once is enough."""
    for complaint in (output or {}).get("perfsuite_complaints", ()):
        if complaint not in run.complaints:
            run.complaints.append(complaint)


def finish(run: Run, given: int) -> int:
    """Close the record and give the exit code of the run."""
    workers.send(run.config, "perfsuite_complaints", run.complaints)
    if run.worker:
        return given
    if run.journal is not None:
        try:
            run.journal.close()
        except OSError as error:
            run.complaints.append(f"the record cannot be written: {error}")
            run.journal = None
    if run.options.gating and run.options.markdown is not None and given != pytest.ExitCode.INTERNAL_ERROR:
        from perfsuite.pytest_plugin import present

        try:
            present.write_markdown(run, run.options.markdown)
        except OSError as error:
            run.complaints.append(f"--perf-markdown cannot be written: {error}")
    return run.exit_code(given)


def open_journal(run: Run) -> None:
    """Get the record's file ready, where this process writes one; UsageError where something else lies there."""
    if run.worker or not run.options.gating or run.config.getoption("collectonly"):
        return
    from perfsuite.record.schema import RecordError
    from perfsuite.record.store import Journal, read_record

    if run.options.record is not None:
        _check_place("--perf-record", run.options.record)
    if run.options.markdown is not None:
        _check_place("--perf-markdown", run.options.markdown, replaced=False)
    path = run.options.record or _default_place(run.config.rootpath)
    if run.options.markdown is not None and run.options.markdown.resolve() == path.resolve():
        raise pytest.UsageError(f"--perf-record and --perf-markdown are both {str(path)!r}; they must be two files")
    if path.exists() and path.stat().st_size:
        try:
            read_record(path)
        except RecordError as error:
            raise pytest.UsageError(f"--perf-record would overwrite what is not a record: {error}") from None
    run.journal = Journal(path)


def _check_place(flag: str, path: Path, *, replaced: bool = True) -> None:
    """UsageError where a file cannot be written in the end: better told now than after an hour of measuring."""
    from perfsuite.record.whole import refusal

    refused = refusal(path, replaced=replaced)
    if refused is None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            refused = str(error)
    if refused is not None:
        raise pytest.UsageError(f"{flag} is {str(path)!r}, which cannot be written: {refused}")


def _default_place(root: Path) -> Path:
    from perfsuite.record.store import default_path
    from perfsuite.record.whole import refusal

    try:
        path = default_path(root)
        refused = refusal(path)
    except OSError as error:
        refused = str(error)
    if refused is not None:
        raise pytest.UsageError(f"the record cannot be written: {refused}; say where it may lie by --perf-record")
    return path


def lock_cards(run: Run) -> None:
    """Keep other runs off the cards of this one, until the run ends."""
    if not run.options.gpu or run.worker or run.fresh or run.config.getoption("collectonly"):
        return
    from perfsuite.device.locks import CardBusy, hold

    cards = run.devices().cards
    mine = cards if run.controller else cards[:1]
    try:
        run.held.enter_context(hold((card.uuid for card in mine), "run", tell=run.tell))
    except CardBusy as error:
        raise pytest.UsageError(str(error)) from None
