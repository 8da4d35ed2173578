"""The output of a gated run: header, one word a test, summary in the terminal, and the markdown for CI."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from perfsuite.pytest_plugin.exit_code import why_nothing
from perfsuite.pytest_plugin.run import Run
from perfsuite.record.case import Case
from perfsuite.report import figures, markdown, terminal

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
    budget = f"{settings.seconds:g} s a case, {settings.cache} cache, seed {settings.seed}"
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
    reporter.section("perfsuite: gates")
    if not run.cases and run.on_device:
        reporter.write_line("no gate was run; the tests that ran on the GPU have none")
        return
    if not run.cases:
        reporter.write_line(why_nothing(run), red=True)
        return
    for verdict, line in terminal.table(run.cases) + terminal.sentences(run.cases):
        reporter.write_line(line, **_MARKUP[verdict])
    for warning in _warnings(run):
        reporter.write_line(f"warning: {warning}", yellow=True)
    beside = run.cases[0].workers
    together = f", {beside} workers" if beside > 1 else ""
    where = f"; record: {_place(run)}" if run.journal is not None else ""
    reporter.write_line(f"{figures.counts(run.cases)}{figures.checking(run.cases)}{together}{where}")


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


def _warnings(run: Run) -> list[str]:
    """The warnings of all cases, each once."""
    return list(dict.fromkeys(warning for case in run.cases for warning in case.warnings))


def write_markdown(run: Run, path: Path) -> None:
    """Append the summary of a gated run to a file; OSError if the file cannot be written."""
    from perfsuite.report import step_summary

    notes = [why_nothing(run)]
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
    return f"{case.verdict} {figures.ratio(case.speed)} [{figures.interval(case)}] of {case.rival}{wanted}{spent}"
