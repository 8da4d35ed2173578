"""After `perfsuite init`, gates, history, asv's page and `ab` work in a repository of any layout."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
SWITCH = "PERFSUITE_WHOLE"
pytestmark = pytest.mark.skipif(SWITCH not in os.environ, reason=f"takes minutes: `nox -s nightly` sets {SWITCH}")
ROOT = Path(__file__).resolve().parents[2]
KERNEL = '''"""Kernels."""

__version__ = "1"


def product(a, b):
    for _ in range({times}):
        result = a @ b
    return result
'''
SETUPTOOLS = """[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
[project]
name = "own-kernels"
version = "1"
[tool.setuptools]
packages = ["own_kernels"]
"""
HATCH = """[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "own-kernels"
version = "1"
"""
FLIT = """[build-system]
requires = ["flit_core>=3.9"]
build-backend = "flit_core.buildapi"
[project]
name = "own-kernels"
dynamic = ["version", "description"]
"""
LAYOUTS = {
    "setuptools": (SETUPTOOLS, "own_kernels/__init__.py"),
    "hatch": (HATCH, "own_kernels/__init__.py"),
    "flit": (FLIT, "own_kernels/__init__.py"),
    "flat": ("", "own_kernels.py"),
}


class User:
    """Somebody at a terminal in a repository."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}

    def __call__(self, *words: str, code: int | None = 0) -> str:
        line = [sys.executable, "-m", *words] if words[0] in ("perfsuite", "pytest", "asv") else list(words)
        done = subprocess.run(line, cwd=self.path, env=self.environment, capture_output=True, text=True)
        said = f"{' '.join(words)}\n{done.stdout}{done.stderr}"
        assert code is None or done.returncode == code, said
        return said

    def commit(self, **files: str) -> None:
        for name, text in files.items():
            (self.path / name).parent.mkdir(exist_ok=True)
            (self.path / name).write_text(text)
        self("git", "add", "-A")
        self("git", "-c", "user.name=A", "-c", "user.email=a@example.org", "commit", "-q", "-m", "a change")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_everything_works_after_init(layout: str, tmp_path: Path) -> None:
    project, kernel = LAYOUTS[layout]
    user = User(tmp_path)
    user("git", "init", "-q", "-b", "main")
    user.commit(**{kernel: KERNEL.format(times=1)} | ({"pyproject.toml": project} if project else {}))
    user("perfsuite", "init", "own_kernels:product", "--against", "torch.matmul", "--shape", "128x128", "--yes")
    user.commit()
    measured = user("pytest", "-q", "-p", "perfsuite.plugin", "--perf-portable", "--perf-seconds=0.2", code=None)
    # A row that is met is counted alone; a narrow table shortens the name of the case.
    assert re.search(r"1 met|(MISSED|UNDECIDED) tests/perf/test_perf_product.py::test_product", measured)
    user("perfsuite", "history", "HEAD", "--portable", "--seconds", "0.1")
    (record,) = (tmp_path / ".perfsuite/history").glob("*.jsonl")
    user("perfsuite", "export", "asv", str(record))
    user("asv", "publish")
    assert (tmp_path / ".perfsuite/asv/html/index.html").is_file()
    assert [*(tmp_path / ".perfsuite/asv/html/graphs").rglob("*track_time_ratio.json")]
    user.commit(**{kernel: KERNEL.format(times=12)})
    options = ["--portable", "--pairs", "4", "--slower", "0.3", "--seconds", "0.1"]
    assert "slower      own_kernels.product" in user("perfsuite", "ab", "HEAD~1", *options, code=1)
    listed = user("perfsuite", "asv", "cases", "--output", "benchmarks_asv/cases.json")
    assert "written" in listed
    shim = "import sys; sys.path.insert(0, 'benchmarks_asv/benchmarks'); import gates"
    check = f"{shim}; print([name for name in vars(gates) if hasattr(vars(gates)[name], 'track_time_ratio')])"
    assert "['perf_product']" in user(sys.executable, "-c", check + "; assert 'cuda_llm_ops' not in sys.modules")
