"""Programs beside the tests, in CUDA: they compile, without a GPU."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NVCC = shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")


@pytest.mark.skipif(NVCC is None, reason="no nvcc here")
@pytest.mark.parametrize("program", ["gemm_plans", "gemm_uneven", "attention_plans"])
def test_the_program_that_runs_every_plan_compiles(tmp_path: Path, program: str) -> None:
    family = program.partition("_")[0].upper()
    flags = ["-std=c++17", "-gencode=arch=compute_90a,code=sm_90a", f"-DCUDA_LLM_OPS_SM90_{family}", "-c"]
    source, made = ROOT / f"tests/ops/{program}.cu", tmp_path / f"{program}.o"
    command = [str(NVCC), *flags, "-I", str(ROOT / "ext/csrc"), str(source), "-o", str(made)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert made.stat().st_size > 0
