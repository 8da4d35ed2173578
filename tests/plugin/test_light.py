"""Loading the plugin into a suite that has nothing to do with GPUs costs next to nothing."""

from __future__ import annotations

import compileall
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MOST_MICROSECONDS = 3000
ATTEMPTS = 12
LOADED = {"perfsuite", "perfsuite.plugin", "perfsuite.pytest_plugin"}
"""All that a suite without GPU tests loads of perfsuite."""
HEAVY = (
    *("torch", "numpy", "rich", "jinja2", "pynvml", "filelock", "perfsuite.clock", "perfsuite.oracle"),
    *("perfsuite.problems", "perfsuite.settings", "perfsuite.outcome", "perfsuite.pytest_plugin.marker"),
)


def environment(place: Path) -> dict[str, str]:
    """Of a process that finds perfsuite at `place`."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
    return kept | {"PYTHONPATH": str(place), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A compiled copy, as an installer leaves it."""
    copy = tmp_path / "installed"
    shutil.copytree(ROOT / "perfsuite", copy / "perfsuite", ignore=shutil.ignore_patterns("__pycache__"))
    for folder in (copy / "perfsuite", copy / "perfsuite" / "pytest_plugin"):
        assert compileall.compile_dir(folder, maxlevels=0, quiet=1)
    return copy


def import_microseconds(place: Path) -> dict[str, int]:
    """Module -> its own time, for everything that the plugin imports where pytest is loaded already."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", "import pytest, perfsuite.plugin"],
        env=environment(place),
        cwd=place,
        capture_output=True,
        text=True,
        check=True,
    )
    lines = re.findall(r"import time:\s+(\d+) \|\s+\d+ \|\s+(\S+)", done.stderr)
    after_pytest = [name for _, name in lines].index("pytest") + 1
    return {name: int(own) for own, name in lines[after_pytest:]}


def test_loading_takes_under_three_milliseconds(installed: Path) -> None:
    # A busy machine interrupts some import in every attempt. The least that each module took is what it costs.
    attempts = [import_microseconds(installed) for _ in range(ATTEMPTS)]
    least = {name: min(attempt[name] for attempt in attempts) for name in attempts[0]}
    assert "perfsuite.plugin" in least
    assert 0 < sum(least.values()) < MOST_MICROSECONDS, least


def test_an_unrelated_suite_gets_no_heavy_import(tmp_path: Path) -> None:
    (tmp_path / "test_unrelated.py").write_text(
        "import sys\n"
        f"HEAVY = {HEAVY!r}\n"
        "def test_it():\n"
        "    assert 'perfsuite.plugin' in sys.modules\n"
        "    assert not [name for name in HEAVY if name in sys.modules]\n"
        f"    assert {{name for name in sys.modules if name.startswith('perfsuite')}} == {LOADED!r}\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "perfsuite.plugin", "--rootdir", str(tmp_path), "-q", str(tmp_path)],
        env=environment(ROOT),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert not (tmp_path / ".perfsuite").exists()
