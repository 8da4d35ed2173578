"""A command and an exporter added to a copy of the tree by one file each: found in help, and usable."""

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


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package, with two new files and no other change."""
    folder = tmp_path_factory.mktemp("tree")
    shutil.copytree(ROOT / "perfsuite", folder / "perfsuite", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "perfsuite" / "cli" / "commands" / "count_cases.py").write_text(COMMAND)
    (folder / "perfsuite" / "exporters" / "case_names.py").write_text(EXPORTER)
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
