"""`perfsuite init`: what it writes, what it keeps, and that the test which it writes reaches a verdict."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from perfsuite.cli.main import main

torch = pytest.importorskip("torch")
ROOT = Path(__file__).resolve().parents[2]
KERNELS = """import torch

def shift(x):
    return x + 1.0

def product(a, b):
    return a @ b

def rows(x):
    assert x.dim() == 3
    return x.sum(-1)

class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(24, 8)

    def forward(self, x):
        return self.linear(x)
"""
SHIFT = ["init", "own_kernels:shift", "--against", "lambda x: torch.add(x, 1.0)"]


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with one file of kernels, and a terminal at which nobody sits."""
    (tmp_path / "own_kernels.py").write_text(KERNELS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    monkeypatch.delitem(sys.modules, "own_kernels", raising=False)
    return tmp_path


def written(repository: Path) -> dict[str, str]:
    return {
        path.relative_to(repository).as_posix(): path.read_text()
        for path in repository.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_the_first_test_reaches_a_verdict(repository: Path) -> None:
    assert main([*SHIFT, "--shape", "64x64"]) == 0
    line = [sys.executable, "-m", "pytest", "-q", "-p", "perfsuite.plugin", "-p", "no:cacheprovider", "--perf-portable"]
    done = subprocess.run(
        [*line, "-vv", "--perf-seconds=0.1"], env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True
    )
    assert done.returncode in (0, 1, 20), done.stdout + done.stderr
    assert "shift fp32[64x64]" in done.stdout
    assert "error" not in done.stdout.lower()


def test_a_second_time_changes_nothing_and_asks_nothing(
    repository: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (repository / ".gitignore").write_text("*.so")
    assert main(SHIFT) == 0
    before = written(repository)
    assert before[".gitignore"] == "*.so\n.perfsuite/\n"
    capsys.readouterr()
    monkeypatch.setattr("builtins.input", lambda question: pytest.fail(question))
    assert main([*SHIFT, "--yes"]) == 0
    assert written(repository) == before
    assert set(capsys.readouterr().out.partition("\n\n")[0].split("\n")) == {
        f"{name}: unchanged" for name in before
    } - {"own_kernels.py: unchanged"}


@pytest.mark.parametrize(("answer", "kept"), [("", True), ("n", True), ("y", False)])
def test_a_file_that_differs_is_overwritten_if_the_user_says_so(
    repository: Path, monkeypatch: pytest.MonkeyPatch, answer: str, kept: bool
) -> None:
    assert main(SHIFT) == 0
    test = repository / "tests/perf/test_perf_shift.py"
    test.write_text("# mine\n")
    (repository / "perf_targets.toml").write_text("# mine too\n")
    asked: list[str] = []
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", lambda question: asked.append(question) or answer)
    assert main(SHIFT) == 0
    assert len(asked) == 1
    assert "test_perf_shift.py is there and differs" in asked[0]
    assert (test.read_text() == "# mine\n") == kept
    assert (repository / "perf_targets.toml").read_text() == "# mine too\n"
    test.write_text("# mine\n")
    assert main([*SHIFT, "--yes"]) == 0
    assert "def test_shift" in test.read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["own_kernels:product", "--against", "torch.matmul"], "args=(a, b), against=torch.matmul"),
        (["own_kernels:rows", "--against", "lambda x: x.sum(-1)"], "x = torch.randn(8, 128, 512, device=DEVICE)"),
        (["own_kernels:Layer", "--against", "own_kernels:Layer"], "x = torch.randn(128, 24, device=DEVICE)"),
        (["own_kernels:Layer", "--against", "own_kernels:Layer"], "load_state_dict(candidate.state_dict())"),
        (
            ["own_kernels:shift", "--against", "torch.neg", "--shape", "5", "--dtype", "float16"],
            "5, device=DEVICE, dtype=",
        ),
    ],
)
def test_arguments_are_found(repository: Path, words: list[str], said: str) -> None:
    assert main(["init", *words]) == 0
    (test,) = (repository / "tests/perf").iterdir()
    compile(test.read_text(), str(test), "exec")
    assert said in test.read_text()


def test_the_rest_fits_the_repository(repository: Path) -> None:
    assert main([*SHIFT, "--at-least", "1.1"]) == 0
    files = written(repository)
    targets = tomllib.loads(files["perf_targets.toml"])
    assert targets == {"portable": {"tests/perf/test_perf_shift.py::*": {"perf_target": {"at_least": 0.5}}}}
    assert "at_least=1.1" in files["tests/perf/test_perf_shift.py"]
    assert "cuda_llm_ops" not in "".join(files.values())
    assert "nox" not in files[".github/workflows/perf.yml"]
    assert "pip install torch pytest-perfsuite\n" in files[".github/workflows/perf.yml"], (
        "a flat folder is not installed"
    )
    (repository / "pyproject.toml").write_text('[project]\nname = "own"\n')
    assert main([*SHIFT, "--at-least", "1.1", "--yes"]) == 0
    assert "pip install torch pytest-perfsuite .\n" in written(repository)[".github/workflows/perf.yml"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "name a kernel as module:function"),
        (["own_kernels:shift"], "name the rival by --against"),
        (["own_kernels:nothing", "--against", "torch.neg"], "own_kernels has no nothing"),
        (["own_kernels.py:shift", "--against", "torch.neg"], "name the module: own_kernels:shift"),
        (["own_kernels:shift", "--against", "lambda x: ("], "which Python cannot read"),
        (["own_kernels:product", "--against", "torch.mm", *["--shape", "2"] * 3], "3 --shape are given"),
        (["own_kernels:shift", "--against", "torch.neg", "--dtype", "int8"], "--dtype is 'int8'; allowed are"),
        (["own_kernels:shift", "--against", "torch.neg", "--at-least", "0"], "--at-least is 0; it must lie"),
        (["lambda x: x", "--against", "torch.neg"], "which the test can import"),
    ],
)
def test_bad_input_writes_nothing(
    repository: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert main(["init", *words]) == 2
    printed: Any = capsys.readouterr().err
    assert said in printed
    assert len(printed.splitlines()) == 1
    assert set(written(repository)) == {"own_kernels.py"}
