"""Pytest with plugins of perfsuite, which leaves none of its bytecode in their folders."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import perfsuite
from perfsuite.history import run_pytest
from perfsuite.history.measure_build import VARIABLE

MODULES = ("perfsuite.history.measure_build", "perfsuite.pytest_plugin.listing")


def test_no_bytecode_of_pytest_stays(tmp_path: Path) -> None:
    source = Path(perfsuite.__file__).parent
    shutil.copytree(source, tmp_path / "perfsuite", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "empty").mkdir()
    test = tmp_path / "empty" / "test_it.py"
    test.write_text("import sys\ndef test_it(): assert 'perfsuite.plugin' in sys.modules\n")
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPATH"] = str(tmp_path)

    def left(command: list[str]) -> list[str]:
        line = [*command, "-W", "error", "-p", MODULES[0], "-p" + MODULES[1], "--rootdir", str(tmp_path), str(test)]
        done = subprocess.run(line, cwd=test.parent, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return sorted(path.name for path in (tmp_path / "perfsuite").rglob("*pytest-*.pyc"))

    assert left(list(run_pytest.COMMAND)) == []
    assert len(left([sys.executable, "-m", "pytest", "-p", "perfsuite.plugin"])) == 3  # as pytest itself would do


def test_modules_of_the_build_come_before_all_others(tmp_path: Path) -> None:
    """Also a plugin of pytest, and a module that it imports."""
    for place in ("build", "checkout"):
        (tmp_path / place).mkdir()
        (tmp_path / place / "kernels.py").write_text(f"PLACE = {place!r}\n")
        plugin = f"import kernels\ndef pytest_report_header(): return f'plugin {place} with {{kernels.PLACE}}'\n"
        (tmp_path / place / "its_plugin.py").write_text(plugin)
    test = tmp_path / "checkout" / "test_it.py"
    test.write_text("import kernels\ndef test_it(): assert kernels.PLACE == 'build'\n")
    package = str(Path(perfsuite.__file__).parents[1])
    environment = os.environ | {VARIABLE: str(tmp_path / "build"), "PYTHONPATH": package}
    line = [*run_pytest.COMMAND, "-p", MODULES[0], "-p", "its_plugin", "-v", "--rootdir", str(tmp_path), str(test)]
    done = subprocess.run(line, cwd=test.parent, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "plugin build with build" in done.stdout
