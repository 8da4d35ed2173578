"""The output of a gated run: header, one word a test, summary in the terminal, and the markdown for CI."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from perfsuite.outcome import printable
from perfsuite.pytest_plugin.exit_code import may_be_empty, why_nothing
from perfsuite.pytest_plugin.run import Run
from perfsuite.record.case import Case
from perfsuite.record.schema import RecordError
from perfsuite.record.store import read_record
from perfsuite.report import figures, markdown, terminal
from perfsuite.settings import cache_modes

_STATUS = {"MISSED": ("missed", "M"), "WRONG": ("wrong", "W"), "UNDECIDED": ("undecided", "U")}
_MARKUP: dict[str, dict[str, bool]] = {
    "": {"bold": True},
    "MET": {"green": True},
    "MISSED": {"red": True},
    "WRONG": {"red": True, "bold": True},
    "UNDECIDED": {"yellow": True},
}


def header(run: Run) -> list[str]:
    """One line about the device and the settings."""
    options = run.options
    settings = options.settings(cases=1)
    cache = " and ".join(cache_modes(options.cache or settings.cache))
    budget = f"{settings.seconds:g} s a case, {cache} cache, seed {settings.seed}"
    if options.shard is not None:
        budget += f", part {options.shard[0]} of {options.shard[1]}"
    if run.elsewhere:
        return [f"perfsuite: {run.elsewhere}; {budget}"]
    if options.portable:
        from perfsuite.clock.processor import busy

        lines = [f"perfsuite: portable backend: host clock on the CPU, not a GPU; {budget}"]
        return [*lines, *(f"perfsuite: {sentence}" for sentence in (busy(),) if sentence)]
    devices = run.devices
    if devices.missing:
        return [f"perfsuite: --gpu, but {devices.missing}"]
    names = ", ".join(dict.fromkeys(card.name for card in devices.cards))
    several = f" ({len(devices.cards)} cards)" if len(devices.cards) > 1 else ""
    return [f"perfsuite: {names}{several}, driver {devices.driver or 'unknown'}; {budget}"]


def status_word(report: pytest.TestReport) -> Any:
    """The status of a gated test for `pytest_report_teststatus`: category, letter, and the line that `-v` shows."""
    if hasattr(report, "wasxfail"):
        return None
    verdict = getattr(report, "perfsuite_verdict", None)
    if verdict is None and not report.passed:
        return None  # it failed for another reason, which pytest shows
    category, letter = _STATUS[verdict] if verdict else ("passed", ".")
    cases = (Case.of_json(line, report.nodeid) for line in report.perfsuite_cases)
    return category, letter, ("; ".join(map(_brief, cases)), _MARKUP[verdict or "MET"])


def write_summary(run: Run, reporter: pytest.TerminalReporter) -> None:
    """The table of a gated run, a sentence for each case that is not MET, and the record's place."""
    if run.collects_only:
        return
    if run.options.gating:
        _write_cases(run, reporter)
    for note in run.notes:
        reporter.write_line(f"perfsuite: {note}", yellow=True)
    for complaint in run.complaints:
        reporter.write_line(f"perfsuite: {complaint}", red=True)


def _write_cases(run: Run, reporter: pytest.TerminalReporter) -> None:
    reporter.ensure_newline()
    reporter.section("perfsuite: gates")
    if not run.cases and run.on_device:
        reporter.write_line("no gate was run; the tests that ran on the GPU have none")
        return
    if not run.cases and may_be_empty(run):
        reporter.write_line(_empty(run))
        return
    if not run.cases:
        reporter.write_line(why_nothing(run), red=True)
        return
    whole = reporter.config.get_verbosity() > 0
    shown = [case for case in run.cases if whole or case.verdict != "MET"]
    if shown:
        lines = terminal.table(shown, _width(reporter), before=_last_run(run))
        for verdict, line in lines + terminal.sentences(shown):
            reporter.write_line(line, **_MARKUP[verdict])
    for warning in _warnings(run):
        reporter.write_line(printable(f"warning: {warning}"), yellow=True)
    beside = run.cases[0].workers
    together = f", {beside} workers" if beside > 1 else ""
    where = f"; record: {_place(run)}" if run.journal is not None else ""
    if len(shown) < len(run.cases):
        where = f" (-v shows all cases){where}"
    reporter.write_line(f"{figures.counts(run.cases)}{figures.checking(run.cases)}{together}{where}")


def _empty(run: Run) -> str:
    """The sentence about a part of the suite that measures nothing."""
    assert run.part is not None
    where = f"; record: {_place(run)}" if run.journal is not None else ""
    return f"part {run.part.number} of {run.part.count} has no gate to run{where}"


def _place(run: Run) -> str:
    """The record's file, or the partial one of a run that did not finish."""
    assert run.journal is not None
    path, root = run.journal.path, run.config.rootpath
    partial = run.journal.partial
    if partial.exists() and run.journal.count:
        path = path.parent / partial.name
    shown = str(path.relative_to(root) if path.is_relative_to(root) else path)
    if not partial.exists():
        return shown
    older = f"; {run.journal.path.name} is as it was" if run.journal.path.exists() else ""
    return f"{shown} (the run did not finish{older})"


def _width(reporter: pytest.TerminalReporter) -> int:
    """The terminal's width; COLUMNS overrides it."""
    return int(reporter._tw.fullwidth)


def _last_run(run: Run) -> list[Case]:
    """The cases of the run before this one; none if there is no record of it that can be read."""
    try:
        return [] if run.previous is None else read_record(run.previous)
    except (OSError, RecordError):
        return []


def write_live(run: Run, case: Case) -> None:
    """A line about a case that has just ended, for somebody who watches; a log gets none."""
    manager = run.config.pluginmanager
    reporter, capture = manager.get_plugin("terminalreporter"), manager.get_plugin("capturemanager")
    if reporter is None or run.worker or run.fresh or not watched(reporter):
        return
    line = terminal.brief(case, _width(reporter) - 1)
    if capture is None:
        _write_live(reporter, line, case.verdict)
    else:
        with capture.global_and_fixture_disabled():
            _write_live(reporter, line, case.verdict)


def watched(reporter: pytest.TerminalReporter) -> bool:
    """True if the output goes to a terminal, not in CI, and nobody asked for less with -q."""
    return bool(reporter.isatty) and reporter.config.get_verbosity() >= 0 and not os.environ.get("CI")


def _write_live(reporter: pytest.TerminalReporter, line: str, verdict: str) -> None:
    reporter.ensure_newline()
    reporter.write_line(line, **_MARKUP[verdict])


def _warnings(run: Run) -> list[str]:
    """The warnings of all cases, each once, with the first test that it concerns and the number of others."""
    tests: dict[str, dict[str, None]] = {}
    for case in run.cases:
        for warning in case.warnings:
            tests.setdefault(warning, {})[case.test or case.case] = None
    return [_of_tests(warning, list(found)) for warning, found in tests.items()]


def _of_tests(warning: str, tests: list[str]) -> str:
    more = len(tests) - 1
    others = "" if not more else f" and {more} more test{'s' if more > 1 else ''}"
    return f"{warning} ({tests[0]}{others})"


def write_markdown(run: Run, path: Path) -> None:
    """Append the summary of a gated run to a file; OSError if the file cannot be written."""
    from perfsuite.report import step_summary

    notes = [_empty(run) if may_be_empty(run) else why_nothing(run)]
    if run.cases:
        notes = [markdown.environment(run.cases[0]), *(f"Warning: {warning}." for warning in _warnings(run))]
    path.parent.mkdir(parents=True, exist_ok=True)
    # CI gives one file for all steps of a job, so a run adds to it.
    with path.open("a", encoding="utf-8", errors="backslashreplace") as file:
        file.write(step_summary.of_cases(run.cases, title="perfsuite gates", notes=notes))


def _brief(case: Case) -> str:
    if case.speed is None:
        return f"{case.verdict} ({case.reason})"
    wanted = "" if case.target is None else f", target {figures.target(case)}"
    spent = f", {case.gpu_seconds:.2g} s" if case.gpu_seconds else ""
    said = f"{case.verdict} {figures.ratio(case.speed)} [{figures.interval(case)}] of {case.rival}{wanted}{spent}"
    return printable(said)
