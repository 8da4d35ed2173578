"""Attention on a Hopper card against FlashAttention's own kernels for it (the package flash-attn-4), where they are."""

from __future__ import annotations

from types import ModuleType

import pytest

from perfsuite import Perf
from tests.perf.hopper.flash_problems import HEADS_AND_DIMS, LENGTHS, NARROW, forward

pytestmark = [
    pytest.mark.gpu(min_capability=(9, 0)),
    pytest.mark.correctness(against="sdpa"),
    pytest.mark.perf_target(against="flash-attn", at_least=0.97),
    pytest.mark.usefixtures("flash_kernels"),
]


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize(("heads", "head_dim"), HEADS_AND_DIMS, ids=["d64", "d128", "d256"])
@pytest.mark.parametrize("length", LENGTHS)
def test_sixteen_thousand_tokens(
    length: int, heads: int, head_dim: int, causal: bool, perf: Perf, ops: ModuleType
) -> None:
    perf(forward(length, heads, head_dim, causal), ops.flash_attention)


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("length", LENGTHS[3:])
def test_a_narrower_v(length: int, causal: bool, perf: Perf, ops: ModuleType) -> None:
    perf(forward(length, 16, causal=causal, **NARROW), ops.flash_attention)
