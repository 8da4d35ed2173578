"""Attention backward alone on a Hopper card, against SDPA's default and its cuDNN backend.

Half of the shapes have 16 heads, half have 64 query heads on 8 key heads; all have 32,768 queries a head, or fewer
where one sequence is longer.
"""

from __future__ import annotations

from types import ModuleType

import pytest

from perfsuite import Attention, Perf

# The gradient by queries is added up in free order, unless torch.use_deterministic_algorithms(True) asks for another.
pytestmark = [
    pytest.mark.gpu(min_capability=(9, 0)),
    pytest.mark.correctness(against="sdpa", deterministic=False),
]

TOKENS = 32768
masks = pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
head_dims = pytest.mark.parametrize("head_dim", [64, 128], ids=["d64", "d128"])
heads_of = pytest.mark.parametrize(("heads", "kv_heads"), [(16, 16), (64, 8)], ids=["h16", "h64of8"])


def problem(length: int, heads: int, kv_heads: int, head_dim: int, causal: bool) -> Attention:
    batch = max(1, min(TOKENS, 4 * length) // length)
    return Attention(
        batch, heads, length, head_dim, kv_heads=kv_heads, causal=causal, dtype="bfloat16", backward="only"
    )


@pytest.mark.perf_target(against="sdpa", at_least=1.0)
@pytest.mark.perf_target(against="sdpa:cudnn", at_least=0.97)
@masks
@head_dims
@heads_of
@pytest.mark.parametrize("length", [4096, 8192, 16384])
def test_long(length: int, heads: int, kv_heads: int, head_dim: int, causal: bool, perf: Perf, ops: ModuleType) -> None:
    perf(problem(length, heads, kv_heads, head_dim, causal), ops.flash_attention)


@pytest.mark.perf_target(against="sdpa", at_least=1.0)
@pytest.mark.perf_target(against="sdpa:cudnn", at_least=1.0)
@masks
@head_dims
@heads_of
@pytest.mark.parametrize("length", [512, 1024, 2048])
def test_short(
    length: int, heads: int, kv_heads: int, head_dim: int, causal: bool, perf: Perf, ops: ModuleType
) -> None:
    perf(problem(length, heads, kv_heads, head_dim, causal), ops.flash_attention)


@pytest.mark.perf_target(against="sdpa", at_least=1.0)
@masks
@pytest.mark.parametrize("length", [1024, 8192])
def test_with_the_forward_pass(length: int, causal: bool, perf: Perf, ops: ModuleType) -> None:
    whole = Attention(2, 16, length, 128, causal=causal, dtype="bfloat16", backward=True)
    perf(whole, ops.flash_attention)
