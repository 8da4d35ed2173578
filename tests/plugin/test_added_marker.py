"""A marker added to a copy of the tree by one file: in the help, in errors, in perf_targets.toml, and in a run."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import HOOKS, ROOT

MARKER = '''"""The marker `registers`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from perfsuite.outcome import Reason
from perfsuite.pytest_plugin.marker import Finding, Marker, MarkerError, Subject, is_count


@dataclass(frozen=True, kw_only=True)
class Registers(Marker):
    """A thread of the candidate may use that many registers at most."""

    overridable = ("at_most",)
    at_most: int

    def __post_init__(self) -> None:
        if not is_count(self.at_most):
            raise MarkerError(f"at_most is {self.at_most!r}; it must be a whole number of registers")

    def judge(self, subject: Subject) -> Iterator[Finding]:
        count = subject.measure("registers", subject.problem)
        broken = Reason.TOO_MUCH_MEMORY if count > self.at_most else None
        yield Finding("registers", broken, f"{count:.0f} registers, at most {self.at_most}", {"registers": count})
'''
TESTS = """
import pytest
from perfsuite import Gemm

def kernel(): return "MET", 1.0
kernel.registers = lambda problem: 128.0

@pytest.mark.registers(at_most=200)
def test_within(perf): perf(Gemm(8, 8, 8), kernel)

@pytest.mark.registers(at_most=200)
def test_overridden(perf): perf(Gemm(8, 8, 8), kernel)

@pytest.mark.registers(at_most=200)
def test_forgets(): pass
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the package with one file more, and a suite beside it."""
    shutil.copytree(ROOT / "perfsuite", tmp_path / "perfsuite", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "perfsuite" / "pytest_plugin" / "markers" / "registers.py").write_text(MARKER)
    (tmp_path / "suite").mkdir()
    (tmp_path / "suite" / "conftest.py").write_text(HOOKS)
    (tmp_path / "suite" / "test_it.py").write_text(TESTS)
    return tmp_path


def run(tree: Path, *arguments: str) -> tuple[int, str]:
    line = [sys.executable, "-m", "pytest", "-p", "perfsuite.plugin", "-p", "no:cacheprovider", *arguments]
    env = {**os.environ, "PYTHONPATH": str(tree), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(line, cwd=tree / "suite", env=env, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_a_marker_is_one_file(tree: Path) -> None:
    help_of_all = run(tree, "--markers")[1]
    assert "@pytest.mark.registers(at_most): A thread of the candidate may use that many registers" in help_of_all

    (tree / "suite" / "perf_targets.toml").write_text(
        "['Fake H200']\n'*overridden' = { registers = { at_most = 100 } }\n"
    )
    code, out = run(tree, "--gpu", "--strict-markers", "--perf-record=record.jsonl")
    assert code == 1, out
    assert "1 missed" in out
    assert "128 registers, at most 100" in out
    assert "the test has registers but never called perf()" in out
    lines = (tree / "suite" / "record.jsonl").read_text().splitlines()[1:-1]
    found = {(case["test"], case["aspect"]): case["verdict"] for case in map(json.loads, lines)}
    assert found == {
        ("test_it.py::test_within", None): "MET",
        ("test_it.py::test_within", "registers"): "MET",
        ("test_it.py::test_overridden", None): "MET",
        ("test_it.py::test_overridden", "registers"): "MISSED",
    }


@pytest.mark.parametrize(
    ("file", "before", "after", "sentence"),
    [
        ("test_it.py", "registers(at_most=200)", "registers(most=1)", "has no argument 'most'; known are at_most"),
        ("test_it.py", "mark.registers(", "mark.register(", "no @pytest.mark.register; did you mean registers?"),
        ("perf_targets.toml", "", "[x]\n'*' = { registers = { at_most = 0 } }", "a whole number of registers"),
        ("perf_targets.toml", "", "[x]\n'*' = { gpu = {} }", "perf_target, registers, roofline_target"),
    ],
)
def test_its_errors_are_those_of_every_marker(tree: Path, file: str, before: str, after: str, sentence: str) -> None:
    path = tree / "suite" / file
    path.write_text(path.read_text().replace(before, after) if before else after)
    code, out = run(tree)
    assert code in (2, 4)
    assert sentence in out
