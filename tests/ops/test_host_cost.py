"""What a small call of attention costs the host, over the bare operator's cost: a call without gradients pays for none.

Each figure is the least of many blocks, taken in turn with the operator's, so that a busy machine changes both. It is
this thread's time: on a busy machine hardly any block runs without a pause.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the operators need torch")

import cuda_llm_ops  # noqa: E402

CALLS, BLOCKS = 20, 150
PACKAGE = Path(cuda_llm_ops.__file__).parent
ops = torch.ops.cuda_llm_ops


def costs(*sides: Callable[[], Any]) -> list[float]:
    """Seconds of this thread in a call of each."""
    least = [float("inf")] * len(sides)
    for _ in range(BLOCKS):
        for place, side in enumerate(sides):
            start = time.thread_time()
            for _ in range(CALLS):
                side()
            least[place] = min(least[place], (time.thread_time() - start) / CALLS)
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
    """autograd adds one dispatch to the operator's, and few Python functions. Counts are the same on a busy machine."""
    q, k, v = (tensor.clone().requires_grad_() for tensor in tensors[:3])
    called: Counter[str] = Counter()

    def counts(frame: FrameType, event: str, _: Any) -> None:
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(str(PACKAGE)):
            called["ours"] += 1
        elif event == "call" and frame.f_code is torch._ops.OpOverload.__call__.__code__:
            called["dispatches"] += 1

    cuda_llm_ops.flash_attention(q, k, v, True)  # what the first call alone does
    sys.setprofile(counts)
    try:
        cuda_llm_ops.flash_attention(q, k, v, True)
    finally:
        sys.setprofile(None)
    assert called["dispatches"] == 2, called
    assert called["ours"] <= 5, called
