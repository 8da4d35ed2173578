"""The comparison of machine code between two commits (ext/machine_code), on repositories of two tiny sources."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).resolve().parents[2]
NVCC = shutil.which("nvcc") or shutil.which(str(Path(os.environ.get("CUDA_HOME", "/usr/local/cuda"), "bin", "nvcc")))
needs_nvcc = pytest.mark.skipif(NVCC is None, reason="needs nvcc to compile two tiny kernels")

SCALE = """
namespace { __constant__ float table[2] = {1.0f, 2.0f}; }
template <int Times>
__global__ void scale(float* values) { values[threadIdx.x] *= Times * table[threadIdx.x % 2]; }
template __global__ void scale<2>(float*);
template __global__ void scale<3>(float*);
"""
ADD = """
#include "step.h"
__global__ void add(float* values) { values[threadIdx.x] += STEP; }
"""
Compare = Callable[..., SimpleNamespace]


def git(folder: Path, *arguments: str) -> str:
    who = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    done = subprocess.run(["git", *who, "-C", str(folder), *arguments], capture_output=True, text=True, check=True)
    return done.stdout


def write(folder: Path, **files: str) -> None:
    """Files by their name, with __ in place of a dot."""
    for name, text in files.items():
        path = folder / "code" / name.replace("__", ".")
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with three kernels in two sources, committed."""
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "-q")
    write(folder, scale__cu=SCALE, add__cu=ADD, step__h="#define STEP 1.0f\n")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "first")
    return folder


@pytest.fixture
def compare(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Compare:
    """Runs the command on HEAD and the working tree, for one architecture."""
    shared = tmp_path_factory.getbasetemp() / "machine_code"

    def run(*arguments: str, path: str | None = None) -> SimpleNamespace:
        fixed = ["--repository", str(repository), "--folder", "code", "-I", "code", "--cache", str(shared)]
        command = [sys.executable, "-m", "machine_code", "HEAD", ".", *fixed, "--arch", "80", *arguments]
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "ext"), "PATH": path or os.environ["PATH"]}
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        return SimpleNamespace(code=done.returncode, out=done.stdout, err=done.stderr)

    return run


def last_line(done: SimpleNamespace) -> str:
    return str(done.out.splitlines()[-1]) if done.out else str(done.err)


@needs_nvcc
def test_comments_formatting_and_places_change_nothing_and_compile_nothing(repository: Path, compare: Compare) -> None:
    compare()
    cache = sorted((repository.parent.parent / "machine_code").rglob("*.cubin"))
    (repository / "code" / "scale.cu").rename(repository / "code" / "moved.cu")
    write(repository, moved__cu="// A comment.\n" + SCALE.replace("{ values", "{\n\n  values"))
    done = compare()
    assert done.code == 0, done.out + done.err
    assert last_line(done) == "3 kernels the same, 0 different, 0 only old, 0 only new"
    assert sorted((repository.parent.parent / "machine_code").rglob("*.cubin")) == cache


@needs_nvcc
def test_a_change_behind_a_header_is_found_with_its_first_instruction(repository: Path, compare: Compare) -> None:
    write(repository, step__h="#define STEP 3.0f\n")
    done = compare()
    assert done.code == 1, done.out + done.err
    assert last_line(done) == "2 kernels the same, 1 different, 0 only old, 0 only new"
    assert "DIFFERENT   sm_80 add (code/add.cu)" in done.out
    assert "differs in code" in done.out
    old, new = (line for line in done.out.splitlines() if line.startswith("    instruction "))
    assert old.partition(", ")[0] == new.partition(", ")[0]  # the same place
    assert old.partition(": ")[2] != new.partition(": ")[2]  # another instruction


@needs_nvcc
def test_a_constant_that_the_code_only_reads_is_compared(repository: Path, compare: Compare) -> None:
    write(repository, scale__cu=SCALE.replace("{1.0f, 2.0f}", "{1.0f, 4.0f}"))
    done = compare("--only", "scale")
    assert done.code == 1, done.out + done.err
    assert last_line(done) == "0 kernels the same, 2 different, 0 only old, 0 only new"
    assert "differs in constants" in done.out


@needs_nvcc
def test_launch_bounds_are_compared(repository: Path, compare: Compare) -> None:
    write(repository, add__cu=ADD.replace("void add", "void __launch_bounds__(64) add"))
    done = compare("--only", "add")
    assert done.code == 1, done.out + done.err
    assert "differs in attributes" in done.out


@needs_nvcc
def test_kernels_with_other_names_are_paired(repository: Path, compare: Compare) -> None:
    renamed = SCALE.replace("scale", "multiply").replace("template <int Times>", "namespace n { template <int Times>")
    write(
        repository,
        scale__cu=renamed.replace("template __global__", "} template __global__", 1).replace(
            "multiply<", "n::multiply<"
        ),
    )
    done = compare("--only", "scale", "--all")
    assert done.code == 0, done.out + done.err
    assert "was scale<2>" in done.out
    assert "SAME   sm_80 n::multiply<3>" in done.out


@needs_nvcc
def test_a_kernel_with_another_name_and_other_code_needs_the_rename(repository: Path, compare: Compare) -> None:
    write(repository, add__cu=ADD.replace("void add", "void plus"), step__h="#define STEP 3.0f\n")
    alone = compare("--only", "add")
    assert alone.code == 1
    assert last_line(alone) == "0 kernels the same, 0 different, 1 only old, 1 only new"
    renamed = compare("--only", "add", "--rename", "^add$=plus")
    assert renamed.code == 1
    assert last_line(renamed) == "0 kernels the same, 1 different, 0 only old, 0 only new"


@needs_nvcc
def test_a_kernel_that_came_and_one_that_went_fail_the_comparison(repository: Path, compare: Compare) -> None:
    write(repository, scale__cu=SCALE.replace("template __global__ void scale<3>(float*);", ""))
    done = compare("--only", "scale")
    assert done.code == 1, done.out + done.err
    assert "ONLY OLD   sm_80 scale<3> (code/scale.cu)" in done.out
    assert last_line(done) == "1 kernels the same, 0 different, 1 only old, 0 only new"


@needs_nvcc
def test_a_source_that_does_not_compile_is_named(repository: Path, compare: Compare) -> None:
    write(repository, add__cu="__global__ void add( {}\n")
    done = compare("--only", "add")
    assert done.code == 2
    assert "code/add.cu of working tree does not compile for sm_80" in done.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--only", "nothing"], "has no .cu file under code that matches nothing"),
        (["--rename", "add"], "--rename 'add' must be OLD=NEW"),
        (["--rename", "(=x"], "is no regular expression"),
        (["--jobs", "0"], "--jobs is 0; it must be 1 or more"),
        (["--nvcc", "/nowhere/nvcc"], "nvcc is not found (looked for /nowhere/nvcc)"),
        (["--nvdisasm", "/nowhere/nvdisasm"], "--nvdisasm /nowhere/nvdisasm is no program"),
    ],
)
def test_bad_input_is_named(compare: Compare, arguments: list[str], words: str) -> None:
    if NVCC is None and "--nvcc" not in arguments:
        arguments = [*arguments, "--nvcc", sys.executable]  # never started: the input is refused before
    done = compare(*arguments)
    assert done.code == 2
    assert words in done.err


def test_an_unknown_commit_is_named(repository: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "ext")}
    command = [
        sys.executable,
        "-m",
        "machine_code",
        "v9",
        ".",
        "--repository",
        str(repository),
        "--nvcc",
        sys.executable,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 2
    assert "'v9' names no commit of" in done.stderr


@needs_nvcc
def test_without_nvdisasm_the_words_are_printed_and_the_tool_is_named(
    repository: Path, compare: Compare, tmp_path: Path
) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("git", "c++filt", "gcc", "g++", "cc", "as", "ld", "sh", "env"):
        if found := shutil.which(name):
            (tools / name).symlink_to(found)
    write(repository, step__h="#define STEP 3.0f\n")
    done = compare("--only", "add", "--nvcc", str(NVCC), path=str(tools))
    assert done.code == 1, done.out + done.err
    assert "nvdisasm is not found" in done.out
    assert "pip install nvidia-cuda-nvdisasm" in done.out
