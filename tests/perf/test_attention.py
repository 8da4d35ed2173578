"""The mission's gates for attention: batch 2, 8 heads, head dimension 64, half precision, against SDPA.

The shares are those of the mission's guide, where SDPA meant FlashAttention-2: `sdpa:flash`. What SDPA takes by
itself is a second rival, and the faster one on a Hopper card, where it is cuDNN.
"""

from __future__ import annotations

from types import ModuleType

import pytest

from perfsuite import Attention, Perf

LENGTHS = [
    pytest.param(length, marks=pytest.mark.perf_target(against="sdpa:flash", at_least=share))
    for length, share in ((512, 1.2), (1024, 1.4), (2048, 1.6), (4096, 1.8), (8192, 2.1))
]


@pytest.mark.gpu(min_capability=(8, 0))
@pytest.mark.correctness(against="sdpa")
@pytest.mark.perf_target(against="sdpa", at_least=1.0)
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("length", LENGTHS)
def test_flash_attention(length: int, causal: bool, perf: Perf, ops: ModuleType) -> None:
    perf(Attention(2, 8, length, 64, causal=causal), ops.flash_attention)


@pytest.mark.gpu(min_capability=(8, 0))
@pytest.mark.correctness(against="sdpa")
@pytest.mark.perf_target(against="sdpa", at_least=1.0)
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
def test_flash_attention_at_a_head_dimension_that_nothing_divides(causal: bool, perf: Perf, ops: ModuleType) -> None:
    perf(Attention(2, 8, 1024, 129, causal=causal), ops.flash_attention)


# The textbook's kernels are there to be read and to be right. Their targets only say that they have not become
# absurdly slow: no tensor cores, and for the naive one all scores through memory.
@pytest.mark.gpu(min_capability=(8, 0))
@pytest.mark.correctness(against="sdpa")
@pytest.mark.perf_target(against="sdpa", at_least=0.005)
@pytest.mark.parametrize("length", [128, 512])
def test_naive_attention(length: int, perf: Perf, ops: ModuleType) -> None:
    perf(Attention(2, 8, length, 64), ops.naive_attention)


@pytest.mark.gpu(min_capability=(8, 0))
@pytest.mark.correctness(against="sdpa")
@pytest.mark.perf_target(against="sdpa", at_least=0.02)
@pytest.mark.parametrize("length", [128, 512])
def test_tiled_attention(length: int, perf: Perf, ops: ModuleType) -> None:
    perf(Attention(2, 8, length, 64), ops.tiled_attention)
