"""The same bits from launch to launch: a result that hangs on timing may differ once in thousands of them.

Operands move from launch to launch and memory is busy between, so that blocks meet in other orders. The shapes keep
every multiprocessor at tile after tile, short ones among them: what is loaded for the next is what a race would read.

    CUDA_LLM_OPS_LAUNCHES=20000 pytest --gpu tests/ops/test_repeated.py
"""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch", reason="the operators need torch")

import cuda_llm_ops  # noqa: E402
import repeated  # noqa: E402
from torch import Tensor  # noqa: E402

pytestmark = pytest.mark.gpu
LAUNCHES = int(os.environ.get("CUDA_LLM_OPS_LAUNCHES", "1500"))


def assert_repeats(call: Callable[..., Tensor], *operands: Tensor) -> None:
    """`call` gives the same bits LAUNCHES times, for the same values at two places."""
    others = repeated.differing(lambda *given: [call(*given)], operands, LAUNCHES)
    assert not others, f"{others} of {LAUNCHES} launches gave other bits than the first"


def normal(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator("cuda").manual_seed(1), device="cuda", dtype=torch.float16)


@pytest.mark.parametrize("is_causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("length", [512, 1000])
@pytest.mark.parametrize("head_dim", [64, 72, 96, 100, 128, 129, 192, 256])
def test_attention(head_dim: int, length: int, is_causal: bool) -> None:
    q, k, v = (normal(16, 16 * 128 // max(head_dim, 64), length, head_dim) for _ in range(3))
    assert_repeats(lambda *qkv: cuda_llm_ops.flash_attention(*qkv, is_causal=is_causal), q, k, v)


@pytest.mark.parametrize("one", repeated.repeats(), ids=lambda one: one.name)
def test_gradients_of_attention(one: repeated.Repeat) -> None:
    call, operands = one.call("cuda")
    others = repeated.differing(call, operands, LAUNCHES)
    assert not others, f"{others} of {LAUNCHES} launches gave other bits than the first"


@pytest.mark.parametrize(
    ("m", "n", "k"),
    [(3762, 1024, 112), (4096, 4096, 64), (1024, 1024, 1024), (64, 4096, 4096), (128, 6144, 512), (1023, 1023, 1023)],
)
def test_products(m: int, n: int, k: int) -> None:
    assert_repeats(cuda_llm_ops.gemm, normal(m, k), normal(k, n))


@pytest.mark.parametrize(("batch", "length"), [(1, 1024), (1, 8192), (8, 1024), (64, 1000)])
def test_decode(batch: int, length: int) -> None:
    lengths = torch.full((batch,), length, dtype=torch.int32, device="cuda")
    q, cache = normal(batch, 32, 1, 128), (normal(batch, 8, length, 128) for _ in range(2))
    assert_repeats(lambda q, k, v: cuda_llm_ops.flash_decode(q, k, v, lengths), q, *cache)
