"""What a small call of attention costs the host, over the bare operator's cost: a call without gradients pays for none.

Each figure is the least of many blocks, taken in turn with the operator's, so that a busy machine changes both.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the operators need torch")

import cuda_llm_ops  # noqa: E402

CALLS, BLOCKS = 100, 30
ops = torch.ops.cuda_llm_ops


def costs(*sides: Callable[[], Any]) -> list[float]:
    """Seconds of a call of each."""
    least = [float("inf")] * len(sides)
    for _ in range(BLOCKS):
        for place, side in enumerate(sides):
            start = time.perf_counter()
            for _ in range(CALLS):
                side()
            least[place] = min(least[place], (time.perf_counter() - start) / CALLS)
    return least


@pytest.fixture
def tensors(device: str) -> list[Any]:
    dtype = torch.float32 if device == "cpu" else torch.bfloat16
    return [torch.randn(1, 1, 4, 16, device=device, dtype=dtype) for _ in range(4)]


@pytest.mark.parametrize("wanted", [False, True], ids=["no grad", "no input requires grad"])
def test_without_gradients(tensors: list[Any], wanted: bool) -> None:
    q, k, v, _ = tensors
    with torch.set_grad_enabled(wanted):
        ours, bare = costs(
            lambda: cuda_llm_ops.flash_attention(q, k, v, True),
            lambda: ops.flash_attention.default(q, k, v, True, None),
        )
    assert ours <= 1.3 * bare + 1e-6, f"{1e6 * ours:.1f} us, the operator alone {1e6 * bare:.1f}"


def test_with_gradients(tensors: list[Any]) -> None:
    """autograd's part of the forward is below what one more dispatch through torch.library would cost."""
    leaves = [tensor.clone().requires_grad_() for tensor in tensors[:3]]
    rest = True, None, False, -1, -1, True
    ours, bare = costs(
        lambda: cuda_llm_ops.flash_attention(*leaves, True),
        lambda: ops.flash_attention_general.default(*tensors[:3], *rest),
    )
    assert ours <= 2.6 * bare, f"{1e6 * ours:.1f} us, the operator alone {1e6 * bare:.1f}"
