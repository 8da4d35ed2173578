"""Programs beside the tests, in CUDA: they compile, without a GPU."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NVCC = shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")


@pytest.mark.skipif(NVCC is None, reason="no nvcc here")
def test_the_program_that_runs_every_gemm_plan_compiles(tmp_path: Path) -> None:
    flags = ["-std=c++17", "-gencode=arch=compute_90a,code=sm_90a", "-DCUDA_LLM_OPS_SM90_GEMM", "-c"]
    source, made = ROOT / "tests/ops/gemm_plans.cu", tmp_path / "gemm_plans.o"
    command = [str(NVCC), *flags, "-I", str(ROOT / "ext/csrc"), str(source), "-o", str(made)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert made.stat().st_size > 0
