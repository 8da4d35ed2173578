"""`perfsuite ab`, `bisect` and asv's runs whole: real builds of real commits, processes of their own, the clock."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from perfsuite.record.store import read_record

from .conftest import Repository, make_repository

SWITCH = "PERFSUITE_WHOLE"
pytestmark = [
    pytest.mark.skipif(SWITCH not in os.environ, reason=f"takes minutes: `nox -s nightly` sets {SWITCH}"),
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed"),
]
ROOT = Path(__file__).resolve().parents[2]
PROJECT = """[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
[project]
name = "small-kernels"
version = "1"
[tool.setuptools]
py-modules = ["small_kernels"]
"""
KERNEL = """def product(a, b):
    for _ in range({times}):
        result = a @ b
    return result
"""
TEST = """import pytest
import small_kernels

@pytest.mark.perf_target(against="cublas", at_least=0.01)
def test_product(perf):
    from perfsuite import Gemm
    perf(Gemm(128, 128, 128, dtype="float32"), small_kernels.product)

@pytest.mark.perf_target(against="cublas", at_least=0.01)
def test_other(perf):
    from perfsuite import Gemm
    perf(Gemm(96, 96, 96, dtype="float32"), small_kernels.other)
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    """A fast commit, one in which `product` works twelve times, one that does not build, and one to stand on."""
    made = make_repository(tmp_path_factory.mktemp("whole") / "project")
    other = "\ndef other(a, b):\n    return a @ b\n"
    (made.path / "test_perf.py").write_text(TEST)
    files = {"pyproject.toml": PROJECT, ".gitignore": ".perfsuite/\n"}
    made.commit("fast", **files, **{"small_kernels.py": KERNEL.format(times=1) + other})
    made.commit("slow", **{"small_kernels.py": KERNEL.format(times=12) + other})
    made.commit("broken", **{"setup.py": "raise SystemExit('kernel.cu:1: error: made up')"})
    (made.path / "setup.py").unlink()
    made.commit("mended")
    return made


def command(project: Repository, *arguments: str) -> subprocess.CompletedProcess[str]:
    options = ["--portable", "--tests", "test_perf.py", "--pairs", "4", "--slower", "0.3", "--seconds", "0.1"]
    return subprocess.run(
        [sys.executable, "-m", "perfsuite", *arguments, *options],
        cwd=project.path,
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_slow_commit_fails_and_its_case_is_named(project: Repository) -> None:
    done = command(project, "ab", project.commits[0], project.commits[1])
    assert done.returncode == 1, done.stdout + done.stderr
    missed = [line for line in done.stdout.splitlines() if line.startswith("slower")]
    assert len(missed) == 1, done.stdout
    assert "small_kernels.product" in missed[0]
    assert not any("small_kernels.other" in line for line in missed)


def test_equal_builds_are_not_measured(project: Repository) -> None:
    made = project.commits[0]
    done = command(project, "ab", made, made)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "byte for byte: nothing to measure" in done.stdout
    assert "process 1" not in done.stdout


def test_a_broken_commit_is_named(project: Repository) -> None:
    done = command(project, "ab", project.commits[0], project.commits[2])
    assert done.returncode == 2
    assert f"{project.commits[2][:12]} does not build" in done.stderr
    assert project.git("worktree", "list").count("\n") == 0


def test_the_first_slow_commit_is_found(project: Repository) -> None:
    done = command(project, "bisect", "small_kernels.product *", project.commits[0], project.commits[3])
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{project.commits[3][:12]}: bad" in done.stdout
    assert done.stdout.splitlines()[-1].startswith(f"{project.commits[1]} is the first commit in which")


def test_records_of_commits_name_their_kernels_and_their_suite(project: Repository, tmp_path: Path) -> None:
    line = ["history", project.commits[0], project.commits[1], "--portable", "--tests", "test_perf.py"]
    done = subprocess.run(
        [sys.executable, "-m", "perfsuite", *line, "--seconds", "0.1", "--output", str(tmp_path)],
        cwd=project.path,
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for commit in project.commits[:2]:
        cases = read_record(tmp_path / f"{commit[:12]}-1.jsonl")
        assert {case.commit for case in cases} == {commit}
        assert {case.line["suite"].removesuffix("-dirty") for case in cases} == {project.commits[3]}
        assert len(cases) == 2


CONFIGURATION = """{
    "version": 1, "project": "small_kernels", "repo": "..", "branches": ["main"], "environment_type": "virtualenv",
    "build_command": ["python -m pip wheel -q --no-deps -w {build_cache_dir} {build_dir}"],
    "install_command": ["in-dir={env_dir} python -m pip install -q --no-deps --force-reinstall {wheel_file}"],
    "benchmark_dir": "benchmarks", "env_dir": "../.perfsuite/env", "results_dir": "results"
}"""
BENCHMARK = """def track_one():
    import small_kernels
    return float(hasattr(small_kernels, "product"))
"""


def test_asv_measures_a_commit_and_a_broken_one_leaves_the_history(project: Repository, tmp_path: Path) -> None:
    folder = project.path / "benchmarks_asv"
    (folder / "benchmarks").mkdir(parents=True)
    (folder / "asv.conf.json").write_text(CONFIGURATION)
    (folder / "benchmarks" / "__init__.py").write_text("")
    (folder / "benchmarks" / "one.py").write_text(BENCHMARK)

    def run(commit: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "perfsuite", "history", "--asv", "--portable", commit],
            cwd=project.path,
            env=os.environ | {"PYTHONPATH": str(ROOT), "HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
        )

    done = run(project.commits[1])
    assert done.returncode == 0, done.stdout + done.stderr
    before = {path: path.read_bytes() for path in (folder / "results").rglob("*.json")}
    assert any(path.name.startswith(project.commits[1][:8]) for path in before)
    for commit, said in ((project.commits[2], "kernel.cu:1: error: made up"), ("nowhere", "'nowhere' names no commit")):
        done = run(commit)
        assert done.returncode == 2, done.stdout + done.stderr
        assert said in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1
        assert {path: path.read_bytes() for path in (folder / "results").rglob("*.json")} == before
