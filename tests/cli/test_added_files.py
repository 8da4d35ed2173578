"""A command, an exporter and a family added to a copy of the tree by one file each: found in help, and usable."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
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
KERNELS = """
def norm(x):
    return x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt()
"""


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package, with three new files and no other change, beside a kernel."""
    folder = tmp_path_factory.mktemp("tree")
    shutil.copytree(ROOT / "perfsuite", folder / "perfsuite", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "perfsuite" / "cli" / "commands" / "count_cases.py").write_text(COMMAND)
    (folder / "perfsuite" / "exporters" / "case_names.py").write_text(EXPORTER)
    (folder / "perfsuite" / "problems" / "families" / "rmsnorm.py").write_text(FAMILY)
    (folder / "kernels.py").write_text(KERNELS)
    return folder


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
    assert "rmsnorm    x (rows, columns) divided by" in perfsuite(tree, "bench", "--help")
    measured = ["--candidate", "kernels.py:norm", "--device", "cpu", "--seconds", "0.05"]
    table = perfsuite(tree, "bench", "rmsnorm", "--shapes", "32x64", "16x128:fp32", *measured).splitlines()
    assert [line.split()[:2] for line in table[1:]] == [["32x64", "torch"], ["16x128", "torch"]]
    assert "GB/s" in table[0]
    assert [line.split()[-1] for line in table[1:]] == ["checked", "checked"]
