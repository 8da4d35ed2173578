"""The gradients of matrix products on a Hopper card, against those of torch, by cuBLAS.

A backward is two products. Their operands are views, transposed where the forward's are not.
"""

from __future__ import annotations

from types import ModuleType

import pytest

from perfsuite import Gemm, Perf

pytestmark = [pytest.mark.gpu(min_capability=(9, 0)), pytest.mark.correctness(against="cublas")]
beside_cublas = pytest.mark.perf_target(against="cublas", at_least=0.95)


@beside_cublas
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("trans_b", [False, True], ids=["nn", "nt"])
@pytest.mark.parametrize("n", [1024, 2048, 4096, 8192])
def test_squares(n: int, trans_b: bool, dtype: str, perf: Perf, ops: ModuleType) -> None:
    perf(Gemm(n, n, n, dtype=dtype, trans_b=trans_b, backward="only"), ops.gemm)


@beside_cublas
@pytest.mark.parametrize("tokens", [2048, 8192])
@pytest.mark.parametrize(("n", "k"), [(4096, 4096), (28672, 4096), (4096, 14336)], ids=str)
def test_weights(n: int, k: int, tokens: int, perf: Perf, ops: ModuleType) -> None:
    perf(Gemm(tokens, n, k, dtype="bfloat16", trans_b=True, backward="only"), ops.gemm)


@beside_cublas
def test_a_batch(perf: Perf, ops: ModuleType) -> None:
    perf(Gemm(1024, 1024, 1024, batch=16, dtype="bfloat16", backward="only"), ops.gemm)


@beside_cublas
@pytest.mark.parametrize("n", [2048, 8192])
def test_with_the_forward_pass(n: int, perf: Perf, ops: ModuleType) -> None:
    perf(Gemm(n, n, n, dtype="bfloat16", trans_b=True, backward=True), ops.gemm)
