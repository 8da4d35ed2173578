"""flash_attention with options on a Hopper card, against the FlashAttention-2 in torch with the same options.

That has windows, lengths by offsets and a diagonal from the bottom right, each with one kernel a call; cuDNN is not
asked for them by torch. The sequences of the packed case are of one length for q and k.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

from perfsuite import Attention, Perf

pytestmark = [pytest.mark.gpu(min_capability=(9, 0))]

PROBLEMS = {
    "window-1024": Attention(1, 16, 8192, 128, causal=True, window=(1023, 0)),
    "window-both-sides": Attention(2, 16, 8192, 64, window=(256, 256)),
    "bottom-right": Attention(8, 16, 512, 128, seq_kv=4096, causal=True, bottom_right=True),
    "bottom-right-d256": Attention(4, 8, 1024, 256, seq_kv=4096, causal=True, bottom_right=True),
}


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.correctness(against="sdpa:flash")
@pytest.mark.perf_target(against="sdpa:flash", at_least=1.5)
def test_masks(name: str, perf: Perf, ops: ModuleType) -> None:
    perf(PROBLEMS[name], ops.flash_attention)


@pytest.mark.correctness(against="sdpa:flash")
@pytest.mark.perf_target(against="sdpa:flash", at_least=1.5)
def test_log_sum_exp(perf: Perf, ops: ModuleType) -> None:
    """FlashAttention-2 writes it at every call."""

    def with_logarithms(*tensors: Any, **options: Any) -> Any:
        return ops.flash_attention(*tensors, return_lse=True, **options)[0]

    perf(Attention(2, 16, 4096, 128, causal=True), with_logarithms)


LENGTHS = (4096, 512, 2048, 1024, 3072, 1536, 2560, 1536)
HEADS, KV_HEADS, HEAD_DIM = 16, 4, 128


@pytest.mark.correctness
@pytest.mark.perf_target(at_least=1.3)
def test_packed_sequences(perf: Perf, ops: ModuleType) -> None:
    import torch

    def packed(generator: torch.Generator) -> tuple[torch.Tensor, ...]:
        q, k, v = (
            torch.randn(
                (sum(LENGTHS), heads, HEAD_DIM), generator=generator, device=generator.device, dtype=torch.float16
            )
            for heads in (HEADS, KV_HEADS, KV_HEADS)
        )
        return q, k, v, torch.tensor([0, *LENGTHS], device=generator.device).cumsum(0).to(torch.int32)

    def ours(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, offsets: torch.Tensor) -> Any:
        return ops.flash_attention_varlen(q, k, v, offsets, offsets, max(LENGTHS), max(LENGTHS), is_causal=True)

    def flash(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        longest = max(LENGTHS)
        out: torch.Tensor = torch.ops.aten._flash_attention_forward(
            q, k, v, offsets, offsets, longest, longest, 0.0, True, False, scale=HEAD_DIM**-0.5
        )[0]
        return out

    def one_by_one(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        out, first = torch.empty_like(q), 0
        for length in LENGTHS:
            rows = slice(first, first + length)
            hidden = torch.ones(length, length, dtype=torch.bool, device=q.device).triu(1)
            for head in range(HEADS):
                kv_head = head // (HEADS // KV_HEADS)
                scores = (q[rows, head] @ k[rows, kv_head].mT * HEAD_DIM**-0.5).masked_fill_(hidden, float("-inf"))
                out[rows, head] = scores.softmax(-1) @ v[rows, kv_head]
            first += length
        return out

    pairs = sum(length * (length + 1) // 2 for length in LENGTHS)
    perf(
        ours,
        args=packed,
        against=flash,
        reference=one_by_one,
        flops=4.0 * HEADS * pairs * HEAD_DIM,
        bytes=4.0 * sum(LENGTHS) * (HEADS + KV_HEADS) * HEAD_DIM,
        label="flash_attention_varlen 512..4096 causal 16/4x128 float16",
    )


@pytest.mark.memory_target(growth="linear")
@pytest.mark.launches(at_most=1)
@pytest.mark.no_sync
def test_one_launch_and_linear_memory(perf: Perf, ops: ModuleType) -> None:
    perf(Attention(2, 8, 2048, 64, window=(128, 128)), ops.flash_attention)
