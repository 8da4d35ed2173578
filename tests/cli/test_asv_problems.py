"""Problems that asv follows without a test: listed, kept in cases.json, and measured in the same run as the suite."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from perfsuite.cli.asv_problems import collected, read_pairs
from perfsuite.cli.main import main
from perfsuite.history import series
from perfsuite.history.commits import HistoryError
from perfsuite.record.store import read_record

pytest.importorskip("torch", reason="torch is not installed")

KERNELS = """
from dataclasses import dataclass

from perfsuite import Problem
from perfsuite.problems.base import Inputs


@dataclass(frozen=True)
class Double(Problem):
    family = "double"
    rows: int
    columns: int
    dtype: str = "float32"

    def inputs(self, generator, *, distribution="normal"):
        import torch

        return Inputs((torch.randn(self.rows, self.columns, generator=generator, device=generator.device),))

    def reference(self, inputs, *, rows=None):
        return 2.0 * inputs.args[0].double()

    def own_rivals(self):
        return {"sum": lambda x: x + x}


def double(x):
    return x * 2.0
"""
TEST = """
import pytest
from asv_kernels import Double, double

@pytest.mark.gpu
@pytest.mark.perf_target(at_least=0.001)
def test_gated(perf):
    perf(Double(8, 16), double)
"""
CASE = "asv_kernels.double double {} float32 vs sum"
GATED = "test_gated vs sum"
LISTED = "test_problem[asv_kernels.py:Double(32, 64)] vs sum"
PAIR = {"problem": "asv_kernels.py:Double(32, 64)", "candidate": "asv_kernels.py:double"}


@pytest.fixture
def suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder: a family of its own, a kernel, and one gated test; pytest does not know the plugin."""
    (tmp_path / "asv_kernels.py").write_text(KERNELS)
    (tmp_path / "test_own.py").write_text(TEST)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    yield tmp_path
    sys.modules.pop("asv_kernels", None)


def test_a_new_family_in_a_gated_test_needs_nothing_else(suite: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["asv", "cases", "test_own.py", "--output", "cases.json"]) == 0
    document = json.loads((suite / "cases.json").read_text())
    assert list(document) == ["groups"]
    assert document["groups"]["own"]["time_ratio"] == [GATED]
    assert main(["asv", "cases", "test_own.py", "--output", "cases.json", "--check"]) == 0
    assert "up to date" in capsys.readouterr().out


def test_a_problem_without_a_test_is_listed_and_kept(suite: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = ["asv", "cases", "test_own.py", "--output", "cases.json"]
    assert main([*line, "--problem", PAIR["problem"], "--candidate", PAIR["candidate"]]) == 0
    document = json.loads((suite / "cases.json").read_text())
    assert document["problems"] == [PAIR]
    assert document["groups"]["problems"]["time_ratio"] == [LISTED]
    assert document["groups"]["own"]["time_ratio"] == [GATED]
    assert main([*line, "--check"]) == 0, "it stays without being named again"
    assert read_pairs(suite / "cases.json") == [PAIR]


def test_it_is_measured_in_the_run_of_the_suite(suite: Path) -> None:
    files, variables = collected(["test_own.py"], [PAIR])
    line = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "perfsuite.plugin"]
    done = subprocess.run(
        [*line, "--perf-portable", "--perf-seconds=0.05", "--perf-record=record.jsonl", *files],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        check=False,
    )
    cases = read_record(suite / "record.jsonl")
    assert [case.case for case in cases] == [CASE.format("8x16"), CASE.format("32x64")], done.stdout
    measured = series.values(cases)
    assert measured["problems"]["time_ratio"][LISTED]
    assert measured["own"]["time_ratio"][GATED]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--problem", PAIR["problem"]], "1 --problem and 0 --candidate; each problem needs one candidate"),
        (["--problem", "no.py:Double(1)", "--candidate", PAIR["candidate"]], "there is no file no.py"),
        (["--check"], "--check compares with a file: name the file by --output"),
    ],
)
def test_bad_input_is_one_sentence(
    words: list[str], sentence: str, suite: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["asv", "cases", "test_own.py", *words]) == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert said.count("\n") == 1


def test_a_file_that_lists_no_problems_properly_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cases.json").write_text('{"groups": {}, "problems": [3]}')
    with pytest.raises(HistoryError, match=r"cases\.json is not a list of cases"):
        read_pairs(tmp_path / "cases.json")
