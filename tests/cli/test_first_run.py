"""The README's commands, as they stand there, lead a stranger from an empty environment to a verdict."""

from __future__ import annotations

import os
import re
import shutil
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
OURS = re.compile(r"(pytest_)?perfsuite|cuda_llm_ops|__editable__")


def of_readme(marker: str) -> str:
    """The text of the README's fenced block after a marker."""
    found = re.search(rf"^<!-- first-run: {marker} -->\n```\w+\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
    assert found, f"the README has no block marked {marker}"
    return found[1]


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """The variables of an environment with torch and pytest but without perfsuite; pip finds the wheels just built."""
    folder = tmp_path_factory.mktemp("stranger")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    site = folder / "venv/lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if not OURS.match(entry.name) and not (site / entry.name).exists():
            (site / entry.name).symlink_to(entry)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    line = ["wheel", "--no-build-isolation", "--no-deps", "-w", folder / "wheels", ROOT, ROOT / "plugin"]
    subprocess.run([*pip, *line], check=True)
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
    assert commands[0] == "pip install pytest-perfsuite"
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
    assert run("pip install pytest-perfsuite", tmp_path, stranger).returncode == 0
    done = run(f"perfsuite init {words} && pytest --perf-portable", tmp_path, stranger)
    assert done.returncode in (0, 1, 20), done.stdout + done.stderr
    record = latest_path(tmp_path)
    assert record is not None
    assert [case.verdict in ("MET", "MISSED", "UNDECIDED") for case in read_record(record)] == [True]


SOURCES = {
    "find-links": "pip install pytest-perfsuite",
    "folder": "pip install --no-build-isolation {tree} {tree}/plugin",
    "address": "pip install --no-build-isolation git+file://{tree} git+file://{tree}#subdirectory=plugin",
}


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository of what the two distributions are built from."""
    made = tmp_path_factory.mktemp("repository")
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, made)
    for name in ("perfsuite", "plugin"):
        ignored = shutil.ignore_patterns("__pycache__", "libraries")
        shutil.copytree(ROOT / name, made / name, symlinks=True, ignore=ignored)
    who = "git -c user.name=A -c user.email=a@example.org"
    commands = f"git init -q && git add -A && {who} commit -q -m all"
    subprocess.run(commands, shell=True, cwd=made, check=True)
    return made


FACTS = """
from importlib.metadata import distributions
own = [one for one in distributions() if one.name in ("perfsuite", "pytest-perfsuite")]
for one in own:
    for file in one.files:
        if not file.match("direct_url.json") and not file.match("REQUESTED") and "libraries" not in file.parts:
            print(one.name, one.version, file)
"""


def test_every_way_to_install_gives_the_same(tmp_path: Path, tree: Path, stranger: Mapping[str, str]) -> None:
    found = {}
    for name, command in SOURCES.items():
        done = run(command.format(tree=tree), tmp_path, stranger)
        assert done.returncode == 0, done.stdout + done.stderr
        found[name] = sorted(run(f"python -c '{FACTS}'", tmp_path, stranger).stdout.splitlines())
        assert run("pip uninstall -y perfsuite pytest-perfsuite", tmp_path, stranger).returncode == 0
    assert {line.split()[0] for line in found["folder"]} == {"perfsuite", "pytest-perfsuite"}
    assert found["find-links"] == found["folder"] == found["address"]


@pytest.mark.parametrize(("named", "kept"), [("", []), ("-p perfsuite.plugin", ["plugin"])])
def test_uninstalling_leaves_nothing(tmp_path: Path, stranger: Mapping[str, str], named: str, kept: list[str]) -> None:
    """pytest keeps bytecode of a plugin that is named beside its file, under a name that no installer knows."""
    (tmp_path / "test_it.py").write_text("def test_it(): pass\n")
    assert run(f"pip install pytest-perfsuite && pytest -q {named}", tmp_path, stranger).returncode == 0
    place = Path(run("python -c 'import perfsuite; print(perfsuite.__path__[0])'", tmp_path, stranger).stdout.strip())
    assert run("pip uninstall -y perfsuite pytest-perfsuite", tmp_path, stranger).returncode == 0
    left = [path for path in place.parent.rglob("*") if OURS.match(path.relative_to(place.parent).parts[0])]
    assert [path.name.partition(".")[0] for path in left if path.is_file()] == kept
    assert bool(left) == bool(kept)
