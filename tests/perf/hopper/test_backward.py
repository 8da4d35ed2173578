"""Attention backward alone on a Hopper card, against SDPA's default and its cuDNN backend.

Half of the shapes have 16 heads, half have 64 query heads on 8 key heads; all have 32,768 queries a head, or fewer
where one sequence is longer. With windows the rival is the FlashAttention-2 in torch, which has them.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from perfsuite import Attention, Perf
from tests.perf.hopper.flash_problems import FEW, WINDOWS, two_sequences

# The gradient by queries is added up in free order, unless torch.use_deterministic_algorithms(True) asks for another.
pytestmark = [pytest.mark.gpu(min_capability=(9, 0))]
free_order = pytest.mark.correctness(against="sdpa", deterministic=False)
beside_cudnn = pytest.mark.perf_target(against="sdpa:cudnn", at_least=1.0)
beside_default = pytest.mark.perf_target(against="sdpa", at_least=1.0)

TOKENS = 32768
masks = pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
head_dims = pytest.mark.parametrize("head_dim", [64, 128], ids=["d64", "d128"])
heads_of = pytest.mark.parametrize(("heads", "kv_heads"), [(16, 16), (64, 8)], ids=["h16", "h64of8"])


def problem(length: int, heads: int, kv_heads: int, head_dim: int, causal: bool, **options: Any) -> Attention:
    batch = max(1, min(TOKENS, 4 * length) // length)
    return Attention(
        batch, heads, length, head_dim, kv_heads=kv_heads, causal=causal, dtype="bfloat16", backward="only", **options
    )


@beside_default
@pytest.mark.perf_target(against="sdpa:cudnn", at_least=0.97)
@free_order
@masks
@head_dims
@heads_of
@pytest.mark.parametrize("length", [4096, 8192, 16384])
def test_long(length: int, heads: int, kv_heads: int, head_dim: int, causal: bool, perf: Perf, ops: ModuleType) -> None:
    perf(problem(length, heads, kv_heads, head_dim, causal), ops.flash_attention)


@beside_default
@pytest.mark.perf_target(against="sdpa:cudnn", at_least=0.97)
@free_order
@masks
@pytest.mark.parametrize(("heads", "kv_heads", "head_dim"), FEW, ids=str)
def test_two_sequences(heads: int, kv_heads: int, head_dim: int, causal: bool, perf: Perf, ops: ModuleType) -> None:
    """The shapes for which a number of TFLOPS is asked."""
    perf(two_sequences(heads, kv_heads, head_dim, causal), ops.flash_attention)


@beside_default
@beside_cudnn
@free_order
@masks
@head_dims
@heads_of
@pytest.mark.parametrize("length", [512, 1024, 2048])
def test_short(
    length: int, heads: int, kv_heads: int, head_dim: int, causal: bool, perf: Perf, ops: ModuleType
) -> None:
    perf(problem(length, heads, kv_heads, head_dim, causal), ops.flash_attention)


@beside_default
@free_order
@masks
@pytest.mark.parametrize("length", [1024, 8192])
def test_with_the_forward_pass(length: int, causal: bool, perf: Perf, ops: ModuleType) -> None:
    whole = Attention(2, 16, length, 128, causal=causal, dtype="bfloat16", backward=True)
    perf(whole, ops.flash_attention)


@beside_default
@beside_cudnn
@free_order
@masks
@pytest.mark.parametrize("length", [8192, 16384])
@pytest.mark.parametrize("head_dim", [96, 192, 256], ids=["d96", "d192", "d256"])
def test_wide(head_dim: int, length: int, causal: bool, perf: Perf, ops: ModuleType) -> None:
    perf(problem(length, 8, 8, head_dim, causal), ops.flash_attention)


@pytest.mark.perf_target(against="sdpa", at_least=1.05)
@pytest.mark.perf_target(against="sdpa:cudnn", at_least=1.05)
@free_order
@masks
@pytest.mark.parametrize("length", [4096, 8192, 16384])
def test_a_narrower_v(length: int, causal: bool, perf: Perf, ops: ModuleType) -> None:
    """As in training with multi-head latent attention; the FlashAttention-2 in torch does not take it."""
    perf(problem(length, 16, 16, 192, causal, value_dim=128), ops.flash_attention)


@pytest.fixture
def deterministic(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Both sides give the same bits at every launch. cuDNN has no such backward, so SDPA's default is another's."""
    import torch

    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # torch asks for it before a float64 product
    monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", False)
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.perf_target(against="sdpa", at_least=1.5)
@pytest.mark.correctness(against="sdpa")
@masks
@pytest.mark.parametrize(
    ("heads", "kv_heads", "head_dim"), [(16, 16, 64), (16, 16, 128), (64, 8, 128), (8, 8, 256)], ids=str
)
@pytest.mark.usefixtures("deterministic")
def test_deterministic(heads: int, kv_heads: int, head_dim: int, causal: bool, perf: Perf, ops: ModuleType) -> None:
    perf(problem(8192, heads, kv_heads, head_dim, causal), ops.flash_attention)


@pytest.mark.perf_target(against="sdpa", at_least=1.5)
@pytest.mark.correctness(against="sdpa")
@masks
@pytest.mark.usefixtures("deterministic")
def test_deterministic_wide(causal: bool, perf: Perf, ops: ModuleType) -> None:
    perf(problem(16384, 8, 8, 256, causal), ops.flash_attention)


@pytest.mark.perf_target(against="sdpa:flash", at_least=1.0)
@pytest.mark.correctness(against="sdpa:flash", deterministic=False)
@head_dims
@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_windows(window: tuple[int, int], head_dim: int, perf: Perf, ops: ModuleType) -> None:
    perf(problem(8192, 16, 16, head_dim, window[1] == 0, window=window), ops.flash_attention)


@pytest.mark.perf_target(against="sdpa:flash", at_least=1.0)
@pytest.mark.correctness(against="sdpa:flash", deterministic=False)
@head_dims
def test_bottom_right(head_dim: int, perf: Perf, ops: ModuleType) -> None:
    """The queries of a chunk, with the keys before it."""
    perf(problem(2048, 16, 16, head_dim, True, seq_kv=8192, bottom_right=True), ops.flash_attention)


@pytest.mark.memory_target(growth="linear")
@pytest.mark.launches(at_most=3)
@pytest.mark.no_sync
@pytest.mark.parametrize("options", [{}, {"window": (128, 0)}], ids=["plain", "window"])
def test_three_launches_and_linear_memory(options: dict[str, Any], perf: Perf, ops: ModuleType) -> None:
    """The main kernel, and a small one before and behind it."""
    perf(problem(2048, 8, 8, 64, True, **options), ops.flash_attention)


LENGTHS = (4096, 512, 2048, 1024, 3072, 1536, 2560, 1536)


@pytest.mark.correctness(deterministic=False)
@pytest.mark.perf_target(at_least=1.0)
@masks
@head_dims
def test_packed_sequences(head_dim: int, causal: bool, perf: Perf, ops: ModuleType) -> None:
    """Against the FlashAttention-2 in torch on the same offsets."""
    import torch

    heads, kv_heads, longest = 16, 4, max(LENGTHS)

    def packed(generator: torch.Generator) -> tuple[torch.Tensor, ...]:
        device = generator.device
        q, k, v = (
            torch.randn((sum(LENGTHS), of, head_dim), generator=generator, device=device).bfloat16().requires_grad_()
            for of in (heads, kv_heads, kv_heads)
        )
        return q, k, v, torch.tensor([0, *LENGTHS], device=device).cumsum(0).to(torch.int32)

    def ours(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, offsets: torch.Tensor) -> Any:
        return ops.flash_attention_varlen(q, k, v, offsets, offsets, longest, longest, is_causal=causal)

    def flash(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        if not q.is_cuda:  # where cases are listed without a card, only the shape is looked at
            return q * 1
        out: torch.Tensor = torch.ops.aten._flash_attention_forward(
            q, k, v, offsets, offsets, longest, longest, 0.0, causal, False, scale=head_dim**-0.5
        )[0]
        return out

    def one_by_one(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        outs, first = [], 0
        for length in LENGTHS:
            rows = slice(first, first + length)
            hidden = torch.ones(length, length, dtype=torch.bool, device=q.device).triu(1)
            of_heads = []
            for head in range(heads):
                kv_head = head // (heads // kv_heads)
                scores = q[rows, head] @ k[rows, kv_head].mT * head_dim**-0.5
                weights = (scores.masked_fill(hidden, float("-inf")) if causal else scores).softmax(-1)
                of_heads.append(weights @ v[rows, kv_head])
            outs.append(torch.stack(of_heads, 1))
            first += length
        return torch.cat(outs)

    pairs = sum(length * (length + 1) // 2 if causal else length * length for length in LENGTHS)
    perf(
        ours,
        args=packed,
        against=flash,
        reference=one_by_one,
        backward="only",
        flops=2.5 * 4.0 * heads * pairs * head_dim,
        bytes=8.0 * sum(LENGTHS) * (heads + kv_heads) * head_dim,
        label=f"flash_attention_varlen 512..4096{' causal' if causal else ''} 16/4x{head_dim} bfloat16",
    )
