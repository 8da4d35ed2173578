"""The mission's gates for matrix products: a share of cuBLAS's speed at three sizes."""

from __future__ import annotations

from types import ModuleType

import pytest

from perfsuite import Gemm, Perf

SIZES = [
    pytest.param(size, marks=pytest.mark.perf_target(against="cublas", at_least=share))
    for size, share in ((512, 0.85), (1024, 0.90), (2048, 0.90))
]


@pytest.mark.gpu(min_capability=(8, 0))
@pytest.mark.correctness(against="cublas")
@pytest.mark.parametrize("n", SIZES)
def test_gemm(n: int, perf: Perf, ops: ModuleType) -> None:
    perf(Gemm(n, n, n, dtype="float16"), ops.gemm)


@pytest.mark.gpu(min_capability=(8, 0))
@pytest.mark.correctness(against="cublas")
@pytest.mark.parametrize("n", SIZES)
def test_tensor_core_gemm(n: int, perf: Perf, ops: ModuleType) -> None:
    perf(Gemm(n, n, n, dtype="float16", out_dtype="float32"), ops.tensor_core_gemm)
