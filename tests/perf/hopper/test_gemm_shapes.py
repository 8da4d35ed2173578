"""Matrix products on a Hopper card: squares in both layouts, a language model's weights, float32 results, odd sizes.

`b` transposed means stored n × k, as the weights of a linear layer are. The targets are the project's own: nothing that
the tensor memory accelerator can describe below 0.95 of cuBLAS, and nothing that it cannot below cuBLAS; and large
weights are read at 0.90 of the bandwidth of the fastest read of as many bytes, measured in the same run, where the rows
are too few for arithmetic to take the time.
"""

from __future__ import annotations

import itertools
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

from perfsuite import Gemm, Perf

if TYPE_CHECKING:
    from _pytest.mark import ParameterSet

SQUARES = (256, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 16384)
# n × k of the projections of 8B, 70B and larger models, and a vocabulary.
WEIGHTS = (
    (4096, 4096),
    (6144, 4096),
    (28672, 4096),
    (4096, 14336),
    (8192, 8192),
    (57344, 8192),
    (8192, 28672),
    (128256, 4096),
)
TOKENS = (1, 4, 16, 64, 128, 512, 2048, 8192)
FEW_TOKENS, LARGE_BYTES = 64, 64 * 2**20

pytestmark = [pytest.mark.gpu(min_capability=(9, 0)), pytest.mark.correctness(against="cublas")]
aligned = pytest.mark.perf_target(against="cublas", at_least=0.95)
unaligned = pytest.mark.perf_target(against="cublas", at_least=1.0)


@aligned
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("trans_b", [False, True], ids=["nn", "nt"])
@pytest.mark.parametrize("n", SQUARES)
def test_squares(n: int, trans_b: bool, dtype: str, perf: Perf, ops: ModuleType) -> None:
    perf(Gemm(n, n, n, dtype=dtype, trans_b=trans_b), ops.gemm)


def with_weights(n: int, k: int, tokens: int) -> ParameterSet:
    bound_by_memory = tokens <= FEW_TOKENS and 2 * n * k >= LARGE_BYTES
    marks = [pytest.mark.roofline_target(at_least=0.90, bandwidth="own_size")] if bound_by_memory else []
    return pytest.param(n, k, tokens, marks=marks, id=f"{n}x{k}-{tokens}")


@aligned
@pytest.mark.parametrize(
    ("n", "k", "tokens"), [with_weights(n, k, tokens) for (n, k), tokens in itertools.product(WEIGHTS, TOKENS)]
)
def test_weights(n: int, k: int, tokens: int, perf: Perf, ops: ModuleType) -> None:
    perf(Gemm(tokens, n, k, trans_b=True), ops.gemm)


@aligned
@pytest.mark.parametrize("n", [512, 1024, 2048, 4096, 8192])
def test_float32_results(n: int, perf: Perf, ops: ModuleType) -> None:
    perf(Gemm(n, n, n, out_dtype="float32"), ops.tensor_core_gemm)


@unaligned
@pytest.mark.parametrize(
    ("m", "n", "k"), [(1023, 1023, 1023), (4095, 4097, 4099), (333, 777, 1111)], ids=["1023", "4095", "333"]
)
def test_unaligned(m: int, n: int, k: int, perf: Perf, ops: ModuleType) -> None:
    perf(Gemm(m, n, k), ops.gemm)


@unaligned
@pytest.mark.parametrize(
    ("m", "n", "k", "trans_b"),
    [
        (16, 50257, 768, False),  # a head whose vocabulary is odd
        (48, 50257, 1024, False),
        (9, 7169, 2051, True),
        (20, 12289, 4101, True),
        (37, 22, 1987, False),
    ],
    ids=["16x50257x768", "48x50257x1024", "9x7169x2051-nt", "20x12289x4101-nt", "37x22x1987"],
)
def test_unaligned_few_rows(m: int, n: int, k: int, trans_b: bool, perf: Perf, ops: ModuleType) -> None:
    perf(Gemm(m, n, k, trans_b=trans_b), ops.gemm)
