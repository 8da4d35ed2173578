"""Random calls of attention's backward, beside SDPA's; random_errors.py runs them."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

sys.path.insert(0, str(Path(__file__).parent))  # the cases are imported by their own names, as under pytest

import backward_cases as cases

from tests.ops.random_calls import Drawer, Found, pairs_of, ratio_of

MOST_OF_LIBRARY = 4.0
"""A gradient is wrong if its error is above the library's so many times, and above so many roundings of its own."""
FLOAT32 = 2.0**-24


def random_case(draw: Drawer) -> cases.Case:
    pick = draw.choice.choice
    head_dim = pick((64, 128, 96, 192, 256, 80, draw.choice.randint(1, 256)))
    value_dim = pick((head_dim,) * 4 + (128 if head_dim == 192 else draw.choice.randint(1, head_dim),))
    kv_heads, packed = pick((1, 1, 2, 4)), draw.choice.random() < 0.25
    count = pick((1, 2, 3, 4)) if packed else 1
    lengths = [draw.size() for _ in range(count)]
    others = lengths if pick((False, True)) else [draw.size() for _ in range(count)]
    if packed and count > 1 and pick((False, False, True)):
        lengths = [0, *lengths[1:]]
    side = lambda: draw.size(1, 2 * draw.most) - 1  # noqa: E731
    window = pick([(-1, -1), (-1, 0), (-1, 0), (side(), 0), (side(), side()), (side(), -1), (-1, side())])
    return cases.Case(
        pick((torch.float16, torch.bfloat16) * 3 + (torch.float32,)),
        1 if packed else pick((1, 1, 2, 3)),
        kv_heads * pick((1, 1, 2, 4)),
        kv_heads,
        lengths,
        others,
        head_dim,
        value_dim,
        *window,
        bottom_right=pick((False, True)),
        with_lse=draw.choice.random() < 0.25,
        scale=pick((0.5, 1.0, 1.0, 3.0)) * head_dim**-0.5,
        packed=packed,
        seed=draw.generator.initial_seed(),
        deterministic=pick((False, True)),
        cancelling=pick((False, True)),
    )


@torch.enable_grad()
def backward(draw: Drawer) -> Found:
    """One call, with every mask, packed or not, by any of its gradients that has the largest ratio."""
    case = random_case(draw)
    made = cases.make(case, draw.device)
    found = cases.gradients(case, made, draw.device)
    theirs = library(case, made)
    shares, errors, told = [], (), []
    for mine, other, exact, size in zip(found, theirs, made.exact, magnitudes(case, made), strict=True):
        rounded = (exact.to(case.dtype).double() - exact).norm()
        numbers = torch.stack([(mine.double() - exact).norm(), (other - exact).norm(), rounded, size, exact.norm()])
        error, of_library, rounding, magnitude, norm = numbers.tolist()
        # What float32 makes of sums of such terms, and the dtype of the result, is no kernel's fault.
        floor = rounding + FLOAT32 * magnitude
        of_library = max(of_library, floor) if math.isfinite(of_library) else floor
        shares.append(error / (MOST_OF_LIBRARY * of_library + 1e-30) if math.isfinite(error) else math.inf)
        errors += pairs_of(error, of_library, mine.numel())
        told.append(f"{error:.2e} of {norm:.2e} (library {of_library:.2e})")
    sentence = "errors of dQ, dK and dV: " + ", ".join(told)
    return Found(kind_of(case), str(case), max(shares) <= 1.0, sentence, ratio_of(errors), errors)


def kind_of(case: cases.Case) -> str:
    words = ["float32" if case.dtype == torch.float32 else "16 bits", "cancelling" if case.cancelling else "normal"]
    words += ["packed"] * case.packed + ["logarithms"] * case.with_lse
    return ", ".join(words)


def library(case: cases.Case, made: cases.Made) -> list[Tensor]:
    """SDPA's gradients, one sequence after the other, key heads repeated.

    Sums over the query heads of a group are made in float64 and rounded to the dtype, as torch rounds them too: without
    that, the library's error would lack a rounding that no gradient of this dtype can be without.

    Its fused backends save the output in its dtype, as any kernel with linear memory does, and are asked for wherever
    they serve: columns of zeros make up what they take. cuDNN would plan every shape anew. SDPA has no logarithms;
    gradients by these are torch's own, of scores and a softmax in the dtype, and are added.
    """
    found = [torch.zeros(one.shape, dtype=torch.float64, device=one.device) for one in (made.q, made.k, made.v)]
    group = case.heads // case.kv_heads
    width = -(-case.head_dim // 8) * 8
    for q_rows, kv_rows in cases.sequences(case):
        seq_q, seq_kv = q_rows.stop - q_rows.start, kv_rows.stop - kv_rows.start
        if not seq_q or not seq_kv:
            continue
        q, k, v = made.q[:, :, q_rows], made.k[:, :, kv_rows], made.v[:, :, kv_rows]
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        seen = cases.seen_of(case, seq_q, seq_kv, q.device)
        # A row that sees no key has no part in a gradient; the library is not asked what it makes of it.
        some = seen.any(-1)
        seen = seen | ~some[:, None]
        whole = bool(seen.all())
        causal = not whole and (case.left, case.right) == (-1, 0) and not case.bottom_right
        leaves = [_widened(one, width).detach().requires_grad_() for one in (q, k, v)]
        with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]):
            out = torch.nn.functional.scaled_dot_product_attention(
                *leaves, None if whole or causal else seen, is_causal=causal, scale=case.scale
            )
        d_out = _widened(made.d_out[:, :, q_rows] * some[:, None], width)
        gradients = [one.double() for one in torch.autograd.grad(out, leaves, d_out)]
        if made.d_lse is not None:
            leaves = [one.detach().requires_grad_() for one in (q, k)]
            lse = (leaves[0] @ leaves[1].mT).float().mul(case.scale).masked_fill(~seen, -math.inf).logsumexp(-1)
            of_lse = torch.autograd.grad(lse, leaves, made.d_lse[:, :, q_rows] * some)
            for place, gradient in enumerate(of_lse):
                gradients[place][..., : case.head_dim] += gradient.double()
        found[0][:, :, q_rows] = gradients[0][..., : case.head_dim]
        for place, gradient in zip((1, 2), gradients[1:], strict=True):
            summed = gradient.unflatten(1, (-1, group)).sum(2)
            found[place][:, :, kv_rows] = summed[..., : found[place].shape[-1]]
    return [one.to(case.dtype).double() for one in found]


def _widened(one: Tensor, width: int) -> Tensor:
    return torch.nn.functional.pad(one, (0, width - one.shape[-1]))


def magnitudes(case: cases.Case, made: cases.Made) -> Sequence[Tensor]:
    """The norms of the gradients, had every term the same sign."""
    sums = [torch.zeros((), dtype=torch.float64, device=made.q.device) for _ in range(3)]
    group = case.heads // case.kv_heads
    with torch.no_grad():
        for q_rows, kv_rows in cases.sequences(case):
            q, d_out, out = (one[:, :, q_rows].double() for one in (made.q, made.d_out, made.out))
            k, v = (one[:, :, kv_rows].double().repeat_interleave(group, 1) for one in (made.k, made.v))
            seen = cases.seen_of(case, q.shape[2], k.shape[2], q.device)
            lse = made.lse[:, :, q_rows, None].double().masked_fill(~seen.any(-1)[:, None], 0.0)
            weights = (q @ k.mT * case.scale - lse).masked_fill(~seen, -math.inf).exp()
            terms = d_out.abs() @ v.abs().mT + (d_out * out).abs().sum(-1, keepdim=True)
            if made.d_lse is not None:
                terms += made.d_lse[:, :, q_rows, None].double().abs()
            terms = weights * terms * case.scale
            of = terms @ k.abs(), terms.mT @ q.abs(), weights.mT @ d_out.abs()
            for place, one in enumerate(of):
                sums[place] += (one if place == 0 else one.unflatten(1, (-1, group)).sum(2)).square().sum()
    return [one.sqrt() for one in sums]
