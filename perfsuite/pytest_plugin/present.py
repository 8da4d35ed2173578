"""What a run shows of itself in the terminal: header, one word a test, summary; and the markdown for CI."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from perfsuite.pytest_plugin.run import Run

_STATUS = {"MISSED": ("missed", "M"), "WRONG": ("wrong", "W"), "UNDECIDED": ("undecided", "U")}
_MARKUP: dict[str, dict[str, bool]] = {
    "": {"bold": True},
    "MET": {"green": True},
    "MISSED": {"red": True},
    "WRONG": {"red": True, "bold": True},
    "UNDECIDED": {"yellow": True},
}


def header(run: Run) -> list[str]:
    """Two lines at most, in gated runs alone: what is measured on, and how."""
    options = run.options
    budget = f"{options.seconds:g} s a case, {options.cache} cache, seed {options.seed}"
    if options.portable:
        return [f"perfsuite: portable backend: host clock on the CPU, not a GPU; {budget}"]
    devices = run.devices()
    if devices.missing:
        return [f"perfsuite: --gpu, but {devices.missing}"]
    names = ", ".join(dict.fromkeys(card.name for card in devices.cards))
    several = f" ({len(devices.cards)} cards)" if len(devices.cards) > 1 else ""
    return [f"perfsuite: {names}{several}, driver {devices.driver or 'unknown'}; {budget}"]


def status_word(report: pytest.TestReport) -> Any:
    """The status of a gated test for `pytest_report_teststatus`: category, letter, and the line that `-v` shows."""
    if hasattr(report, "wasxfail"):
        return None
    cases = report.perfsuite_cases
    verdict = getattr(report, "perfsuite_verdict", None)
    if verdict is None and not report.passed:
        return None  # it failed for another reason, which pytest shows
    category, letter = _STATUS[verdict] if verdict else ("passed", ".")
    return category, letter, ("; ".join(_brief(case) for case in cases), _MARKUP[verdict or "MET"])


def write_summary(run: Run, reporter: pytest.TerminalReporter) -> None:
    """The table of a gated run, sentences for what is not met, and where the record lies."""
    if run.config.getoption("collectonly"):
        return
    if run.options.gating:
        _write_cases(run, reporter)
    for complaint in run.complaints:
        reporter.write_line(f"perfsuite: {complaint}", red=True)


def _write_cases(run: Run, reporter: pytest.TerminalReporter) -> None:
    from perfsuite.report import figures, terminal

    reporter.section("perfsuite: gates")
    if not run.cases and run.on_device:
        reporter.write_line("no gate was run; what ran on the GPU are tests without one")
        return
    if not run.cases:
        code, sentence = run.why_nothing()
        reporter.write_line(f"nothing was measured ({code}): {sentence}", red=True)
        return
    for verdict, line in terminal.table(run.cases):
        reporter.write_line(line, **_MARKUP[verdict])
    for verdict, sentence in terminal.sentences(run.cases):
        reporter.write_line(sentence, **_MARKUP[verdict])
    for warning in _warnings(run):
        reporter.write_line(f"warning: {warning}", yellow=True)
    beside = run.cases[0].get("workers", 1)
    together = f", {beside} workers" if beside > 1 else ""
    where = f"; record: {_shown(run)}" if run.journal is not None else ""
    reporter.write_line(f"{figures.counts(run.cases)}{figures.checking(run.cases)}{together}{where}")


def _warnings(run: Run) -> list[str]:
    """What the cases warn of, each once."""
    return list(dict.fromkeys(warning for case in run.cases for warning in case.get("warnings") or ()))


def _shown(run: Run) -> str:
    assert run.journal is not None
    path = run.journal.path
    return str(path.relative_to(run.config.rootpath) if path.is_relative_to(run.config.rootpath) else path)


def write_markdown(run: Run, path: Path) -> None:
    """Add the summary of a gated run to a file; OSError where that takes none."""
    from perfsuite.report import markdown

    if run.config.getoption("collectonly"):
        return
    if run.cases:
        notes = [markdown.environment(run.cases[0]), *(f"Warning: {warning}." for warning in _warnings(run))]
    else:
        notes = [": ".join(run.why_nothing())]
    path.parent.mkdir(parents=True, exist_ok=True)
    # CI gives one file for all steps of a job, so a run adds to it.
    with path.open("a", encoding="utf-8") as file:
        file.write(markdown.summary(run.cases, title="perfsuite gates", notes=notes))


def _brief(case: Mapping[str, Any]) -> str:
    from perfsuite.report import figures

    if case["speed"] is None:
        return f"{case['verdict']} ({case['reason']})"
    wanted = "" if case["target"] is None else f", target {figures.target(case)}"
    spent = f", {case['gpu_seconds']:.2g} s" if case.get("gpu_seconds") else ""
    return (
        f"{case['verdict']} {figures.ratio(case['speed'])} [{figures.interval(case)}] of {case['rival']}{wanted}{spent}"
    )
