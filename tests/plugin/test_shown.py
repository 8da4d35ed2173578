"""The terminal's part of a gated run: the table, a line a case where somebody watches, and names that are text only."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest

from .conftest import ROOT, Suite

TESTS = """
@TARGET
def test_met(perf): perf(Gemm(8, 8, 8), met)

@TARGET
def test_missed(perf): perf(Gemm(8, 8, 8), missed)

@TARGET
def test_undecided(perf): perf(Gemm(8, 8, 8), undecided)
"""
EVIL = """
@TARGET
def test_evil(perf): perf(Gemm(8, 8, 8), missed, label="\\x1b[31m[red]bold[/red]")
"""


def rows(out: str) -> list[str]:
    """The lines of the table, with its head."""
    lines = out.partition("perfsuite: gates")[2].splitlines()[1:]
    return [line for line in lines if line.startswith("test")]


def test_what_needs_reading_comes_first_and_the_rest_is_counted(suite: Suite) -> None:
    suite.write(TESTS)
    shown = rows(suite.run("--gpu").out)
    assert [line.split()[0] for line in shown] == ["test", "test_missed", "test_undecided"]
    outcome = suite.run("--gpu", "-v")
    assert [line.split()[0] for line in rows(outcome.out)] == ["test", "test_missed", "test_undecided", "test_met"]
    assert "(-v shows all cases)" not in outcome.out
    assert "1 missed (-v shows all cases)" in suite.run("--gpu").out


@pytest.mark.parametrize("width", [40, 80, 120])
def test_rows_fit_the_terminal(suite: Suite, monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    suite.write(TESTS)
    shown = rows(suite.run("--gpu", "-v", subprocess=True).out)
    assert len(shown) == 4
    assert max(map(len, shown)) <= width


def test_the_last_runs_value_stands_in_the_row(suite: Suite) -> None:
    suite.write(TESTS)
    kept = f"--perf-record={suite.path / '.perfsuite/runs/one.jsonl'}"
    assert " last " not in rows(suite.run("--gpu", kept).out)[0]
    assert " last " in rows(suite.run("--gpu").out)[0]
    (suite.path / ".perfsuite/runs/one.jsonl").write_text("no record\n")
    assert " last " not in rows(suite.run("--gpu").out)[0]


def on_a_terminal(suite: Suite, *words: str, **variables: str) -> str:
    """The output of a run whose standard output is a terminal."""
    ours, theirs = pty.openpty()
    kept = {name: value for name, value in os.environ.items() if name != "CI"} | {"TERM": "dumb", **variables}
    line = [sys.executable, "-m", "pytest", "-p", "perfsuite.plugin", "--gpu", *words]
    child = subprocess.Popen(line, cwd=suite.path, env=kept | {"PYTHONPATH": str(ROOT)}, stdout=theirs, stderr=theirs)
    os.close(theirs)
    said = b""
    while True:
        try:
            part = os.read(ours, 4096)
        except OSError:  # the child has closed the terminal
            break
        if not part:
            break
        said += part
    os.close(ours)
    child.wait()
    return said.decode()


@pytest.mark.parametrize(
    ("words", "variables", "lines"),
    [((), {}, 3), (("-q",), {}, 0), ((), {"CI": "1"}, 0), (("-p", "xdist", "-n2"), {}, 0)],
    ids=["watched", "quiet", "CI", "workers"],
)
def test_a_line_a_case_where_somebody_watches(
    suite: Suite, words: tuple[str, ...], variables: dict[str, str], lines: int
) -> None:
    suite.write(TESTS)
    said = on_a_terminal(suite, *words, **variables).partition("perfsuite: gates")[0]
    live = [line for line in said.splitlines() if line.startswith(("MET ", "MISSED ", "UNDECIDED "))]
    assert len(live) == lines, said
    assert all(len(line) <= 80 for line in live)


def test_names_reach_the_terminal_as_text(suite: Suite) -> None:
    suite.write(EVIL)
    said = on_a_terminal(suite, "-v", "--color=no")
    assert "\x1b" not in said
    assert "\\x1b[31m[red]bold" in said
