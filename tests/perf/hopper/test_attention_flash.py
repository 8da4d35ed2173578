"""Attention on a Hopper card against FlashAttention's own kernels for it (the package flash-attn-4), where they are."""

from __future__ import annotations

from types import ModuleType

import pytest

from perfsuite import Attention, Perf
from perfsuite.problems.rivals.flash_attn import missing

TOKENS = 16384

pytestmark = [
    pytest.mark.gpu(min_capability=(9, 0)),
    pytest.mark.correctness(against="sdpa"),
    pytest.mark.perf_target(against="flash-attn", at_least=0.97),
]


@pytest.fixture(autouse=True)
def _package(request: pytest.FixtureRequest) -> None:
    """Skips where the package is missing; the suite's cases are listed all the same."""
    why = missing()
    if why is not None and not request.config.pluginmanager.has_plugin("perfsuite.pytest_plugin.listing"):
        pytest.skip(why)


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize(("heads", "head_dim"), [(32, 64), (16, 128), (8, 256)], ids=["d64", "d128", "d256"])
@pytest.mark.parametrize("length", [512, 1024, 2048, 4096, 8192, 16384])
def test_sixteen_thousand_tokens(
    length: int, heads: int, head_dim: int, causal: bool, perf: Perf, ops: ModuleType
) -> None:
    perf(Attention(TOKENS // length, heads, length, head_dim, causal=causal), ops.flash_attention)
