"""Suites that run one after another in one process, as the tests of this folder run them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from .conftest import ROOT

TESTS = """
import pytest

@pytest.mark.parametrize("turn", range(3))
def test_it(suite, turn):
    suite.write("import gc, torch\\ndef test_torch(): gc.collect(); assert torch.ones(2).sum() == 2")
    assert suite.run("-p", "no:cacheprovider").junit == {"test_torch": "passed"}
"""


def test_inner_suites_load_torch_once(tmp_path: Path) -> None:
    """In a process of its own: here another test may have loaded torch before."""
    file = tmp_path / "test_turns.py"
    file.write_text(TESTS)
    plugins = ("-p", "pytester", "-p", "plugin.conftest", "-p", "no:cacheprovider")
    # This very test may run in a worker, which passes its options on.
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *plugins, str(file)],
        cwd=tmp_path,
        env=kept | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout.splitlines()[-1][:8]) == (0, "3 passed"), done.stdout + done.stderr
