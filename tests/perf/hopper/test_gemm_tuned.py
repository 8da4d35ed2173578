"""Matrix products on a Hopper card against the fastest of the algorithms that cuBLAS has for them.

`cublas:tuned` measures all that cuBLASLt proposes for a product, and torch's own call, and takes the fastest. No share
of that is asked for: the gate is the 0.90 that the mission names for cuBLAS, and what counts is the record.
"""

from __future__ import annotations

from types import ModuleType

import pytest

from perfsuite import Gemm, Perf

SQUARES = (512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192)
# tokens, n × k: decode, small batches and prefill through the projections of an 8B and a 70B model.
WEIGHTS = ((1, 4096, 4096), (16, 28672, 4096), (64, 4096, 14336), (128, 8192, 8192), (2048, 28672, 4096))

pytestmark = [
    pytest.mark.gpu(min_capability=(9, 0)),
    pytest.mark.correctness(against="cublas"),
    pytest.mark.perf_target(against="cublas:tuned", at_least=0.90),
]


@pytest.mark.parametrize("trans_b", [False, True], ids=["nn", "nt"])
@pytest.mark.parametrize("n", SQUARES)
def test_squares(n: int, trans_b: bool, perf: Perf, ops: ModuleType) -> None:
    perf(Gemm(n, n, n, trans_b=trans_b), ops.gemm)


@pytest.mark.parametrize(("tokens", "n", "k"), WEIGHTS, ids=[f"{m}x{n}x{k}" for m, n, k in WEIGHTS])
def test_weights(tokens: int, n: int, k: int, perf: Perf, ops: ModuleType) -> None:
    perf(Gemm(tokens, n, k, trans_b=True), ops.gemm)
