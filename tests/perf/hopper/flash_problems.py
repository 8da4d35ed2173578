"""The problems whose rival is FlashAttention's own kernels: what is exported where its compiler cannot be installed."""

from __future__ import annotations

from itertools import product
from typing import Any

from perfsuite import Attention

TOKENS, TOKENS_BACKWARD = 16384, 32768
LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)
HEADS_AND_DIMS = ((32, 64), (16, 128), (8, 256))
HEADS = ((16, 16), (64, 8))
NARROW = {"head_dim": 192, "value_dim": 128}
WINDOWS = ((127, 0), (256, 256), (511, 0), (2047, 0), (1024, 1024))
FEW = ((64, 8, 128), (8, 8, 64))
"""Heads, key heads and head_dim of two sequences of 8,192."""


def forward(length: int, heads: int, head_dim: int, causal: bool, **options: Any) -> Attention:
    return Attention(TOKENS // length, heads, length, head_dim, causal=causal, **options)


def backward(length: int, heads: int, kv_heads: int, head_dim: int, causal: bool, **options: Any) -> Attention:
    """Backward alone: 32,768 queries a head, or fewer where one sequence is longer than 8,192."""
    batch = max(1, min(TOKENS_BACKWARD, 4 * length) // length)
    return Attention(
        batch, heads, length, head_dim, kv_heads=kv_heads, causal=causal, dtype="bfloat16", backward="only", **options
    )


def two_sequences(heads: int, kv_heads: int, head_dim: int, causal: bool) -> Attention:
    """Backward alone: half as many queries as `backward` has, or fewer."""
    return Attention(2, heads, 8192, head_dim, kv_heads=kv_heads, causal=causal, dtype="bfloat16", backward="only")


PROBLEMS = [
    *(forward(length, *of, causal) for length, of, causal in product(LENGTHS, HEADS_AND_DIMS, (False, True))),
    *(backward(length, *of, d, causal) for length, of, d, causal in product(LENGTHS, HEADS, (64, 128), (False, True))),
    *(two_sequences(*of, causal) for of, causal in product(FEW, (False, True))),
    *(backward(length, 8, 8, d, causal) for length, d, causal in product((8192, 16384), (96, 192, 256), (False, True))),
    *(forward(length, 16, causal=causal, **NARROW) for length, causal in product(LENGTHS[3:], (False, True))),
    *(backward(length, 16, 16, causal=causal, **NARROW) for length, causal in product(LENGTHS[3:], (False, True))),
    *(backward(8192, 16, 16, d, window[1] == 0, window=window) for d, window in product((64, 128), WINDOWS)),
]
