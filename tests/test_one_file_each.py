"""A family, an exporter, a command and a marker, added to a copy of the tree by one file each, with no other change.

Each is found in help, in the tables of docs and in use. The family gets all that the built-in ones have: checks, hard
inputs, timing, `bench`, a place in the record, a series of asv.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from perfsuite.record.store import read_record

ROOT = Path(__file__).resolve().parents[1]
COMMAND = '''"""Count the cases of a record."""

from pathlib import Path

from perfsuite.record.store import read_record

HELP = "count the cases of a record"


def add_arguments(parser):
    parser.add_argument("record", type=Path)


def run(arguments):
    print(len(read_record(arguments.record)), "cases")
    return 0
'''
EXPORTER = '''"""Write the names of the cases."""

HELP = "one name a line"


def text(cases, *, title):
    return "".join(f"{case.case}\\n" for case in cases)
'''
FAMILY = '''"""Rows divided by their root mean square."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from perfsuite.problems.base import Inputs, Problem
from perfsuite.problems.distributions import draw


@dataclass(frozen=True)
class RMSNorm(Problem):
    """x (rows, columns) divided by the root mean square of each row."""

    family: ClassVar[str] = "rmsnorm"
    rows: int
    columns: int
    dtype: str = "float32"

    @property
    def bytes(self):
        return 8.0 * self.rows * self.columns

    def inputs(self, generator, *, distribution="normal"):
        import torch

        shape = (self.rows, self.columns)
        return Inputs((draw(distribution, shape, getattr(torch, self.dtype), generator, role="x", axis=-1),))

    def reference(self, inputs, *, rows=None):
        x = inputs.args[0].double()
        return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt()

    def own_rivals(self):
        import torch

        return {"torch": lambda x: torch.nn.functional.rms_norm(x, x.shape[-1:], eps=1e-6)}
'''
MARKER = '''"""The marker `dtype_kept`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from perfsuite.outcome import Reason
from perfsuite.pytest_plugin.marker import Finding, Marker, Subject


@dataclass(frozen=True, kw_only=True)
class DtypeKept(Marker):
    """The problem's dtype must be the one named."""

    needs_gpu = False
    name: str

    def judge(self, subject: Subject) -> Iterator[Finding]:
        found = subject.problem.params["dtype"]
        broken = None if found == self.name else Reason.TOO_MUCH_MEMORY
        yield Finding("dtype_kept", broken, f"the dtype is {found}, {self.name} asked", {"kept": float(not broken)})
'''
KERNELS = """
def norm(x):
    return x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt()

def clamped(x):  # right on ordinary values
    return norm(x.clamp(-20, 20))
"""
TESTS = """
import pytest
from kernels import clamped, norm
from perfsuite import RMSNorm

@pytest.mark.gpu
@pytest.mark.dtype_kept(name="float32")
@pytest.mark.perf_target(against="torch", at_least=0.001)
def test_norm(perf): perf(RMSNorm(64, 256), norm)

@pytest.mark.gpu
@pytest.mark.dtype_kept(name="float16")
def test_dtype(perf): perf(RMSNorm(64, 256), norm)

@pytest.mark.gpu
@pytest.mark.correctness()
def test_clamped(perf): perf(RMSNorm(64, 256), clamped)
"""
PAGE = "".join(
    f"<!-- perfsuite:listing {name} -->\n<!-- /perfsuite:listing -->\n"
    for name in ("commands", "exporters", "families", "markers")
)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package, with four new files and no other change, beside a kernel, its tests and a page."""
    folder = tmp_path_factory.mktemp("tree")
    suite = folder / "perfsuite"
    shutil.copytree(ROOT / "perfsuite", suite, ignore=shutil.ignore_patterns("__pycache__"))
    (suite / "cli" / "commands" / "count_cases.py").write_text(COMMAND)
    (suite / "exporters" / "case_names.py").write_text(EXPORTER)
    (suite / "problems" / "families" / "rmsnorm.py").write_text(FAMILY)
    (suite / "pytest_plugin" / "markers" / "dtype_kept.py").write_text(MARKER)
    (folder / "kernels.py").write_text(KERNELS)
    (folder / "test_norm.py").write_text(TESTS)
    (folder / "page.md").write_text(PAGE)
    return folder


def pytest_in(tree: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "pytest", "-p", "perfsuite.plugin", "-p", "no:cacheprovider", *arguments]
    env = {**os.environ, "PYTHONPATH": str(tree), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(line, cwd=tree, env=env, capture_output=True, text=True, check=False)


def perfsuite(tree: Path, *arguments: str) -> str:
    line = [sys.executable, "-m", "perfsuite", *arguments]
    done = subprocess.run(line, cwd=tree, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_command_is_one_file(tree: Path) -> None:
    assert "count-cases  count the cases of a record" in perfsuite(tree, "--help")
    record = ROOT / "records" / "h200" / "gates.jsonl"
    assert perfsuite(tree, "count-cases", str(record)).split()[1] == "cases"
    assert "Count the cases of a record." in perfsuite(tree, "count-cases", "--help")


def test_an_exporter_is_one_file(tree: Path) -> None:
    assert "case-names  one name a line" in perfsuite(tree, "export", "--help")
    record = ROOT / "records" / "h200" / "gates.jsonl"
    assert "flash_attention" in perfsuite(tree, "export", "case-names", str(record)).splitlines()[0]


def test_a_family_is_one_file(tree: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    assert re.search(r"rmsnorm +x \(rows, columns\) divided by", perfsuite(tree, "bench", "--help"))
    measured = ["--candidate", "kernels.py:norm", "--device", "cpu", "--seconds", "0.05"]
    table = perfsuite(tree, "bench", "rmsnorm", "--shapes", "32x64", "16x128:fp32", *measured).splitlines()
    assert [line.split()[:2] for line in table[1:]] == [["32x64", "torch"], ["16x128", "torch"]]
    assert "GB/s" in table[0]
    assert [line.split()[-1] for line in table[1:]] == ["checked", "checked"]


def test_a_marker_is_one_file(tree: Path) -> None:
    printed = pytest_in(tree, "--markers").stdout
    assert "@pytest.mark.dtype_kept(name): The problem's dtype must be the one named." in printed


def test_tables_of_docs_list_all_four(tree: Path) -> None:
    perfsuite(tree, "table", "page.md")
    page = (tree / "page.md").read_text()
    assert "| `perfsuite count-cases` | count the cases of a record |" in page
    assert "| `case-names` | one name a line |" in page
    assert "| `RMSNorm` | `rmsnorm` | x (rows, columns) divided by the root mean square of each row. |" in page
    assert "| `dtype_kept(name)` | The problem's dtype must be the one named. |" in page


def test_a_run_checks_times_and_records_the_family(tree: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    done = pytest_in(tree, "--perf-portable", "--perf-seconds=0.2", "--perf-record=run.jsonl", "test_norm.py")
    assert done.returncode == 1, done.stdout + done.stderr
    cases = [case.as_json() for case in read_record(tree / "run.jsonl")]
    found = {(case["test"].partition("::")[2], case["aspect"]): case for case in cases}
    timed = found["test_norm", None]
    assert (timed["verdict"], timed["rival"], timed["params"]["columns"]) == ("MET", "torch", 256)
    assert timed["candidate_seconds"] > 0
    assert found["test_norm", "dtype_kept"]["verdict"] == "MET"
    assert found["test_dtype", "dtype_kept"]["verdict"] == "MISSED"
    hard = found["test_clamped", None]
    assert hard["verdict"] == "WRONG"
    assert "on inputs of the distribution dominant" in hard["sentence"]
    shown = perfsuite(tree, "export", "case-names", "run.jsonl")
    assert "kernels.norm rmsnorm 64x256 float32 vs torch" in shown.splitlines()


def test_asv_gets_a_series_of_the_family(tree: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    perfsuite(tree, "asv", "cases", "test_norm.py", "--output", "cases.json")
    groups = json.loads((tree / "cases.json").read_text())["groups"]
    assert any("'test_norm vs torch'" in str(series) for series in groups["norm"].values()), groups
