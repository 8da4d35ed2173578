"""The example repository, used as a stranger would: from the built wheels, in an empty environment.

Only torch and what it needs are taken from this environment. Everything else comes from the wheels and an index.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from perfsuite.outcome import EXIT_MET, EXIT_MISSED, EXIT_UNDECIDED, Verdict
from perfsuite.record.store import read_record

SWITCH = "PERFSUITE_WHOLE"
pytestmark = pytest.mark.skipif(SWITCH not in os.environ, reason=f"takes minutes: `nox -s nightly` sets {SWITCH}")
ROOT = Path(__file__).resolve().parents[2]
PLANTED = "    squares = torch.linalg.vecdot(x, x).unsqueeze(-1)\n"
"""The line of the example before which slow work is planted."""


def run(*command: str | Path, cwd: Path, allowed: tuple[int, ...] = (0,)) -> str:
    """Run a command as in a shell that nobody has set up for perfsuite; its output if the exit code is allowed."""
    names = [name for name in os.environ if name.startswith(("PYTHON", "PERFSUITE", "PYTEST", "COV"))]
    environment = {name: value for name, value in os.environ.items() if name not in names} | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode in allowed, f"{command}: {done.returncode}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def torchs_folders() -> dict[str, Path]:
    """Top-level name -> its place, of torch, numpy and everything that they require, but for setuptools."""
    found, wanted = {}, ["torch", "numpy"]
    while wanted:
        if (name := wanted.pop()) == "setuptools":
            continue
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # required on other machines only
        for file in distribution.files or ():
            top = file.parts[0]
            if top not in found and top not in ("..", "__pycache__") and not top.endswith(".pth"):
                found[top] = Path(str(distribution.locate_file(top)))
                needed = [text for text in distribution.requires or () if "extra ==" not in text]
                wanted += [match[0] for text in needed if (match := re.match(r"[\w.-]+", text))]
    return found


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a new environment that has torch, the two wheels, and what they require."""
    folder = tmp_path_factory.mktemp("stranger")
    run(
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "-q",
        "--no-deps",
        "-w",
        folder / "wheels",
        ROOT,
        ROOT / "plugin",
        cwd=folder,
    )
    venv.create(folder / "venv", with_pip=True)
    place = next((folder / "venv" / "lib").glob("python*")) / "site-packages"
    for name, path in torchs_folders().items():
        (place / name).symlink_to(path)
    made = folder / "venv" / "bin" / "python"
    run(made, "-m", "pip", "install", "-q", "--find-links", folder / "wheels", "pytest-perfsuite", cwd=folder)
    place_of = run(made, "-c", "import perfsuite; print(perfsuite.__file__)", cwd=folder)
    assert str(place) in place_of
    assert not run(
        made, "-c", "import importlib.util as u; print(u.find_spec('cuda_llm_ops') or '')", cwd=folder
    ).strip()
    return made


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the example as a repository: one commit, then one that makes `rms_norm` slower."""
    path = tmp_path_factory.mktemp("example") / "fast-kernels"
    shutil.copytree(ROOT / "examples", path, ignore=shutil.ignore_patterns("__pycache__", ".perfsuite", "*.egg-info"))
    git = ("git", "-c", "user.name=somebody", "-c", "user.email=somebody@example.org")
    norms = path / "fast_kernels" / "norms.py"
    slow = norms.read_text().replace(PLANTED, "    for _ in range(100):\n        x = x + 0.0\n" + PLANTED)
    assert slow != norms.read_text()
    run(*git, "init", "-q", "-b", "main", cwd=path)
    for text, message in ((norms.read_text(), "Four kernels"), (slow, "A slower rms_norm")):
        norms.write_text(text)
        run(*git, "add", "-A", cwd=path)
        run(*git, "commit", "-qm", message, cwd=path)
    return path


def test_its_gates_hold(python: Path, example: Path) -> None:
    run("git", "checkout", "-q", "HEAD~1", cwd=example)
    try:
        # A busy machine may not decide; a missed gate here is a fault of the example.
        ends = (EXIT_MET, EXIT_UNDECIDED)
        command = (python, "-m", "pytest", "--perf-portable", "--perf-seconds=3", "--perf-record=gates.jsonl")
        run(*command, cwd=example, allowed=ends)
        found = {str(case.test).partition("::")[2]: case for case in read_record(example / "gates.jsonl")}
        assert set(found) >= {"test_rms_norm", "test_gelu"}
        assert all(case.verdict is not Verdict.WRONG and case.speed for case in found.values())
    finally:
        (example / "gates.jsonl").unlink(missing_ok=True)
        run("git", "checkout", "-q", "main", cwd=example)


def test_ab_finds_the_planted_slow_down(python: Path, example: Path) -> None:
    command = (python.parent / "perfsuite", "ab", "HEAD~1", "HEAD", "--portable")
    run(
        *command,
        "--tests",
        "tests/test_kernels.py::test_rms_norm",
        "--output",
        "ab.json",
        cwd=example,
        allowed=(EXIT_MISSED,),
    )
    (pair,) = json.loads((example / "ab.json").read_text())
    assert pair["verdict"] == Verdict.MISSED, pair
    assert pair["high"] < 0.9, pair
