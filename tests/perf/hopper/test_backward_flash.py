"""Attention backward alone on a Hopper card against FlashAttention's own kernels for it, where they are."""

from __future__ import annotations

from types import ModuleType

import pytest

from perfsuite import Perf
from tests.perf.hopper.flash_problems import FEW, HEADS, LENGTHS, NARROW, WINDOWS, backward, two_sequences

# Both sides add up the gradient by queries in free order. The library is that of test_backward.py: where both are
# measured in one run, a problem is examined once.
pytestmark = [
    pytest.mark.gpu(min_capability=(9, 0)),
    pytest.mark.correctness(against="sdpa", deterministic=False),
    pytest.mark.usefixtures("flash_kernels"),
]
not_slower = pytest.mark.perf_target(against="flash-attn", at_least=0.97)
faster = pytest.mark.perf_target(against="flash-attn", at_least=1.05)
masks = pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
head_dims = pytest.mark.parametrize("head_dim", [64, 128], ids=["d64", "d128"])
heads_of = pytest.mark.parametrize(("heads", "kv_heads"), HEADS, ids=["h16", "h64of8"])


@not_slower
@masks
@head_dims
@heads_of
@pytest.mark.parametrize("length", LENGTHS[3:])
def test_long(length: int, heads: int, kv_heads: int, head_dim: int, causal: bool, perf: Perf, ops: ModuleType) -> None:
    perf(backward(length, heads, kv_heads, head_dim, causal), ops.flash_attention)


@not_slower
@masks
@pytest.mark.parametrize(("heads", "kv_heads", "head_dim"), FEW, ids=str)
def test_two_sequences(heads: int, kv_heads: int, head_dim: int, causal: bool, perf: Perf, ops: ModuleType) -> None:
    perf(two_sequences(heads, kv_heads, head_dim, causal), ops.flash_attention)


@faster
@masks
@head_dims
@heads_of
@pytest.mark.parametrize("length", LENGTHS[:3])
def test_short(
    length: int, heads: int, kv_heads: int, head_dim: int, causal: bool, perf: Perf, ops: ModuleType
) -> None:
    perf(backward(length, heads, kv_heads, head_dim, causal), ops.flash_attention)


@not_slower
@masks
@pytest.mark.parametrize("length", [8192, 16384])
@pytest.mark.parametrize("head_dim", [96, 192, 256], ids=["d96", "d192", "d256"])
def test_wide(head_dim: int, length: int, causal: bool, perf: Perf, ops: ModuleType) -> None:
    perf(backward(length, 8, 8, head_dim, causal), ops.flash_attention)


@faster
@masks
@pytest.mark.parametrize("length", LENGTHS[3:])
def test_a_narrower_v(length: int, causal: bool, perf: Perf, ops: ModuleType) -> None:
    perf(backward(length, 16, 16, causal=causal, **NARROW), ops.flash_attention)


@faster
@pytest.mark.correctness(against="sdpa:flash", deterministic=False)
@head_dims
@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_windows(window: tuple[int, int], head_dim: int, perf: Perf, ops: ModuleType) -> None:
    perf(backward(8192, 16, 16, head_dim, window[1] == 0, window=window), ops.flash_attention)
