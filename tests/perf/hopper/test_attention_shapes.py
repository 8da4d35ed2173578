"""Attention on a Hopper card, prefill, against what SDPA takes by itself there (cuDNN wherever it can)."""

from __future__ import annotations

from types import ModuleType

import pytest

from perfsuite import Attention, Perf

TOKENS = 16384
LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)

pytestmark = [
    pytest.mark.gpu(min_capability=(9, 0)),
    pytest.mark.correctness(against="sdpa"),
    pytest.mark.perf_target(against="sdpa", at_least=1.0),
]
masks = pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])


@masks
def test_the_longest_of_the_missions_table(causal: bool, perf: Perf, ops: ModuleType) -> None:
    perf(Attention(2, 8, 16384, 64, causal=causal), ops.flash_attention)


@masks
@pytest.mark.parametrize(("heads", "head_dim"), [(32, 64), (16, 128), (8, 256)], ids=["d64", "d128", "d256"])
@pytest.mark.parametrize("length", LENGTHS)
def test_sixteen_thousand_tokens(
    length: int, heads: int, head_dim: int, causal: bool, perf: Perf, ops: ModuleType
) -> None:
    perf(Attention(TOKENS // length, heads, length, head_dim, causal=causal), ops.flash_attention)


@pytest.mark.parametrize("length", [4096, 8192])
@pytest.mark.parametrize("heads", [32, 64])
def test_grouped_queries(heads: int, length: int, perf: Perf, ops: ModuleType) -> None:
    perf(Attention(1, heads, length, 128, kv_heads=8, causal=True), ops.flash_attention)


@masks
@pytest.mark.parametrize("head_dim", [72, 96, 100, 129, 192])
def test_other_head_dimensions(head_dim: int, causal: bool, perf: Perf, ops: ModuleType) -> None:
    perf(Attention(4, 16, 2048, head_dim, causal=causal), ops.flash_attention)


def test_one_sequence_of_a_language_model(perf: Perf, ops: ModuleType) -> None:
    perf(Attention(1, 32, 2048, 128, causal=True), ops.flash_attention)


@masks
def test_a_large_batch(causal: bool, perf: Perf, ops: ModuleType) -> None:
    perf(Attention(32, 16, 4096, 128, causal=causal), ops.flash_attention)


@pytest.mark.perf_target(against="sdpa:cudnn", at_least=1.0)
@masks
@pytest.mark.parametrize("length", [4096, 8192, 16384])
def test_a_narrower_v(length: int, causal: bool, perf: Perf, ops: ModuleType) -> None:
    perf(Attention(TOKENS // length, 16, length, 192, value_dim=128, causal=causal), ops.flash_attention)
