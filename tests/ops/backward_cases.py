"""Cases of attention's backward with any mask, and their gradients in float64."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple

import cuda_llm_ops
import ops_reference as reference
import torch
from torch import Tensor

DTYPES = (torch.float16, torch.bfloat16, torch.float32)


@dataclass
class Case:
    """seq_q and seq_kv are the lengths of each sequence: of one, or of several that are packed. -1: no limit."""

    dtype: torch.dtype
    batch: int
    heads: int
    kv_heads: int
    seq_q: list[int]
    seq_kv: list[int]
    head_dim: int
    value_dim: int
    left: int = -1
    right: int = -1
    bottom_right: bool = False
    with_lse: bool = False  # its gradient too
    scale: float = 0.2
    packed: bool = False
    seed: int = 0
    deterministic: bool = False
    """Under torch.use_deterministic_algorithms."""
    cancelling: bool = False
    """Scores, and terms of the gradients, cancel all but a sixteenth of them."""


class Made(NamedTuple):
    """Tensors (batch, heads, sequence, head_dim), in the case's dtype; logarithms and their gradient in float32."""

    q: Tensor
    k: Tensor
    v: Tensor
    d_out: Tensor
    d_lse: Tensor | None
    out: Tensor
    lse: Tensor
    exact: list[Tensor]  # the gradients of q, k and v in float64

    def check(self, case: Case, found: list[Tensor]) -> None:
        """The gradients are as near as roundings to the dtype allow."""
        # Weights, their gradients and the output are rounded to the dtype; sums are kept in float32. The rounding of a
        # logarithm shows in every weight of its row.
        finite = self.lse[self.lse.isfinite()]
        largest = finite.abs().max().item() if finite.numel() else 0.0
        limit = (2 + largest) * 4 * reference.UNIT
        if case.dtype != torch.float32:
            limit += 3.5 * reference.rounding(case.dtype)
        for name, ours, right in zip(("q", "k", "v"), found, self.exact, strict=True):
            assert not ours.isnan().any(), f"{case}: the gradient of {name} is not written everywhere"
            error = (ours.to(right.device).double() - right).norm() / (right.norm() + 1e-3 * right.numel() ** 0.5)
            assert error <= limit, (
                f"{case}: gradient of {name} is off by {error:.2e} of its norm, more than {limit:.1e}"
            )


def seen_of(case: Case, seq_q: int, seq_kv: int, device: torch.device) -> Tensor:
    """Which keys a query sees, (seq_q, seq_kv)."""
    return reference.visible_keys(seq_q, seq_kv, False, case.bottom_right, (case.left, case.right), device)


def sequences(case: Case) -> Iterator[tuple[slice, slice]]:
    """The rows of q, and of k and v, of each sequence."""
    at_q = at_kv = 0
    for seq_q, seq_kv in zip(case.seq_q, case.seq_kv, strict=True):
        yield slice(at_q, at_q + seq_q), slice(at_kv, at_kv + seq_kv)
        at_q, at_kv = at_q + seq_q, at_kv + seq_kv


def attend(case: Case, q: Tensor, k: Tensor, v: Tensor, seq_q: int, seq_kv: int) -> tuple[Tensor, Tensor]:
    """The output and the logarithms by the definition; a query that sees no key gets zeros, and minus infinity."""
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    seen = seen_of(case, seq_q, seq_kv, q.device)
    scores = (q @ k.mT * case.scale).masked_fill(~seen, float("-inf"))
    lse = scores.logsumexp(-1)
    weights = (scores - torch.where(lse == float("-inf"), 0.0, lse)[..., None]).exp()
    return weights @ v, lse


def make(case: Case, device: str = "cpu") -> Made:
    generator = torch.Generator(device).manual_seed(case.seed)
    batch = 1 if case.packed else case.batch
    rows_q, rows_kv = sum(case.seq_q), sum(case.seq_kv)

    def normal(heads: int, rows: int, columns: int, alike: bool = False) -> Tensor:
        found = torch.randn(batch, heads, rows, columns, generator=generator, device=device)
        if case.cancelling and rows:
            # Of q, k and the output's gradient a row is all but the opposite of the one before; rows of v are alike.
            others = found[:, :, :1] if alike else -found[:, :, : rows - 1 : 2]
            found[:, :, 1::2] = others + found[:, :, 1::2] / 16
            if alike:
                found[:, :, ::2] = others + found[:, :, ::2] / 16
        return found.to(case.dtype)

    q, k = normal(case.heads, rows_q, case.head_dim), normal(case.kv_heads, rows_kv, case.head_dim)
    v, d_out = normal(case.kv_heads, rows_kv, case.value_dim, alike=True), normal(case.heads, rows_q, case.value_dim)
    d_lse = torch.randn(batch, case.heads, rows_q, generator=generator, device=device) if case.with_lse else None
    leaves = [tensor.double().requires_grad_() for tensor in (q, k, v)]
    outs, lses = [], []
    for q_rows, kv_rows in sequences(case):
        of = [leaves[0][:, :, q_rows], leaves[1][:, :, kv_rows], leaves[2][:, :, kv_rows]]
        out, lse = attend(case, *of, q_rows.stop - q_rows.start, kv_rows.stop - kv_rows.start)
        outs.append(out)
        lses.append(lse)
    out, lse = torch.cat(outs, 2), torch.cat(lses, 2)
    loss = (out * d_out.double()).sum()
    if d_lse is not None:
        loss = loss + (torch.where(lse == float("-inf"), 0.0, lse) * d_lse.double()).sum()
    exact = list(torch.autograd.grad(loss, leaves))
    return Made(q, k, v, d_out, d_lse, out.detach().to(case.dtype), lse.detach().float(), exact)


def options_of(case: Case) -> dict[str, Any]:
    return {"scale": case.scale, "bottom_right": case.bottom_right, "window": (case.left, case.right)}


def offsets_of(case: Case, device: str) -> tuple[Tensor, Tensor, int, int]:
    q, k = (torch.tensor([0, *lengths]).cumsum(0).int().to(device) for lengths in (case.seq_q, case.seq_kv))
    return q, k, max(case.seq_q), max(case.seq_kv)


def packed(tensor: Tensor) -> Tensor:
    """(1, heads, rows, ...) as (rows, heads, ...)."""
    return tensor[0].transpose(0, 1)


def gradients(case: Case, made: Made, device: str) -> list[Tensor]:
    """Through the functions that users call."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(case.deterministic, warn_only=True)
    try:
        return _gradients(case, made, device)
    finally:
        torch.use_deterministic_algorithms(before)


def _gradients(case: Case, made: Made, device: str) -> list[Tensor]:
    on = [tensor.to(device) for tensor in (made.q, made.k, made.v, made.d_out)]
    d_lse = None if made.d_lse is None else made.d_lse.to(device)
    leaves = [tensor.requires_grad_() for tensor in on[:3]]
    if case.packed:
        out, lse = cuda_llm_ops.flash_attention_varlen(
            *map(packed, leaves), *offsets_of(case, device), return_lse=True, **options_of(case)
        )
        out, lse = out.transpose(0, 1)[None], lse[None]
    else:
        out, lse = cuda_llm_ops.flash_attention(*leaves, return_lse=True, **options_of(case))
    results, given = ([out], [on[3]]) if d_lse is None else ([out, lse], [on[3], d_lse])
    return list(torch.autograd.grad(results, leaves, given))


def random_case(seed: int) -> Case:
    random = Random(seed)
    kv_heads = random.randint(1, 2)
    head_dim = random.choice([8, 24, 40, 64, 80, 96, 128]) if seed % 3 else random.randint(1, 256)
    value_dim = head_dim if seed % 4 else random.randint(1, head_dim)
    packed = random.random() < 0.3
    side = lambda: random.randint(0, 90)  # noqa: E731
    window = random.choice([(-1, -1), (-1, 0), (side(), 0), (side(), side()), (side(), -1), (-1, side())])
    counts = [random.randint(1, 4) if packed else 1] * 2
    lengths = [[random.randint(int(i == 0), 150) for i in range(count)] for count in counts]
    return Case(
        random.choice(DTYPES),
        1 if packed else random.randint(1, 2),
        kv_heads * random.randint(1, 2),
        kv_heads,
        *lengths,
        head_dim,
        value_dim,
        *window,
        bottom_right=random.random() < 0.5,
        with_lse=random.random() < 0.3,
        scale=random.choice([0.0, 0.2, 1.3]),
        packed=packed,
        seed=seed,
    )
