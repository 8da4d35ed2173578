"""The README's commands, as they stand there, lead a stranger from an empty environment to a verdict."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

import pytest

from perfsuite.record.places import latest_path
from perfsuite.record.store import read_record

pytest.importorskip("torch")
SWITCH = "PERFSUITE_WHOLE"
pytestmark = pytest.mark.skipif(SWITCH not in os.environ, reason=f"takes minutes: `nox -s nightly` sets {SWITCH}")
ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
KERNELS = """import torch


def product(a, b):
    return a @ b


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(256, 256)

    def forward(self, x):
        return torch.relu(self.linear(x))
"""
OURS = re.compile(r"perfsuite|cuda_llm_ops|__editable__")


def of_readme(marker: str) -> str:
    """The text of the README's fenced block after a marker."""
    found = re.search(rf"^<!-- first-run: {marker} -->\n```\w+\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
    assert found, f"the README has no block marked {marker}"
    return found[1]


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """The variables of an environment with torch and pytest but without perfsuite; pip finds the wheel just built."""
    folder = tmp_path_factory.mktemp("stranger")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    site = folder / "venv/lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if not OURS.match(entry.name) and not (site / entry.name).exists():
            (site / entry.name).symlink_to(entry)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--no-build-isolation", "--no-deps", "-w", folder / "wheels", ROOT], check=True)
    for program, call in (("pip", "-m pip"), ("pytest", "-c 'import sys, pytest; sys.exit(pytest.console_main())'")):
        script = folder / "venv/bin" / program
        script.write_text(f'#!/bin/sh\nexec {folder}/venv/bin/python {call} "$@"\n')
        script.chmod(0o755)
    kept = {name: os.environ[name] for name in ("HOME", "LANG", "TMPDIR") if name in os.environ}
    path = f"{folder}/venv/bin{os.pathsep}{os.environ['PATH']}"
    return kept | {"PATH": path, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(folder / "wheels")}


def run(command: str, folder: Path, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["bash", "-c", command], cwd=folder, env=environment, capture_output=True, text=True)


def test_the_commands_of_the_readme_reach_a_verdict(tmp_path: Path, stranger: Mapping[str, str]) -> None:
    commands = of_readme("commands").splitlines()
    assert 0 < len(commands) <= 5, commands
    assert commands[0] == "pip install perfsuite"
    (tmp_path / "kernels.py").write_text(of_readme("kernels.py"))
    said = []
    for command in commands:
        done = run(command, tmp_path, stranger)
        said.append(f"$ {command}\n{done.stdout}{done.stderr}(exit {done.returncode})")
        assert done.returncode in (0, 1, 20), "\n".join(said)
    record = latest_path(tmp_path)
    assert record is not None, "\n".join(said)
    (case,) = read_record(record)
    assert case.verdict in ("MET", "MISSED", "UNDECIDED"), "\n".join(said)
    assert "site-packages" in run("python -c 'import perfsuite; print(perfsuite.__file__)'", Path("/"), stranger).stdout


@pytest.mark.parametrize("words", ["kernels:product --against torch.matmul", "kernels:Layer --against kernels:Layer"])
def test_two_arguments_and_a_module(tmp_path: Path, stranger: Mapping[str, str], words: str) -> None:
    (tmp_path / "kernels.py").write_text(KERNELS)
    assert run("pip install perfsuite", tmp_path, stranger).returncode == 0
    done = run(f"perfsuite init {words} && pytest --perf-portable", tmp_path, stranger)
    assert done.returncode in (0, 1, 20), done.stdout + done.stderr
    record = latest_path(tmp_path)
    assert record is not None
    assert [case.verdict in ("MET", "MISSED", "UNDECIDED") for case in read_record(record)] == [True]


def test_uninstalling_leaves_nothing_but_bytecode_of_pytest(tmp_path: Path, stranger: Mapping[str, str]) -> None:
    """pytest keeps bytecode of every plugin beside its files, under names that no installer knows."""
    (tmp_path / "test_it.py").write_text("def test_it(): pass\n")
    assert run("pip install perfsuite && pytest -q", tmp_path, stranger).returncode == 0
    place = run("python -c 'import perfsuite; print(perfsuite.__path__[0])'", tmp_path, stranger).stdout.strip()
    assert run("pip uninstall -y perfsuite", tmp_path, stranger).returncode == 0
    assert not [path for path in Path(place).rglob("*") if path.is_file() and "-pytest-" not in path.name]
    assert not [*Path(place).parent.glob("perfsuite-*")]
