"""Random calls of flash_decode, for random_errors.py."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import cuda_llm_ops
import torch
from torch import Tensor

from perfsuite.oracle.measures import measure
from tests.ops.random_calls import Drawer, Found, pairs_of, ratio_of

FLOAT32 = 2.0**-24
UNITS = 16.0
"""Roundings of a score and of an exponential, and of sums besides those over tokens."""


def decode(draw: Drawer) -> Found:
    """8-bit caches: sequences of any lengths, contiguous or in pages, with 1 to 16 query tokens."""
    pick = draw.choice.choice
    cache, dtype = pick((torch.float8_e4m3fn, torch.int8)), pick((torch.float16, torch.bfloat16) * 3 + (torch.float32,))
    return _drawn(draw, cache, dtype)


def decode_16(draw: Drawer) -> Found:
    """The same of 16-bit caches, which are of the queries' dtype and have no scales."""
    dtype = draw.choice.choice((torch.float16, torch.bfloat16))
    return _drawn(draw, dtype, dtype)


def _drawn(draw: Drawer, cache: torch.dtype, dtype: torch.dtype) -> Found:
    pick, device = draw.choice.choice, draw.device
    batch, kv_heads, group = pick((1, 1, 2, 3, 8, 40)), pick((1, 2, 8)), pick((1, 4, 4, 5, 8, 16))
    head_dim, seq_q = pick((128, 128, 128, 64, 96, 33, 256)), pick((1, 1, 2, 3, 4, 5, 8, 16))
    page = pick((None, None, 1, 5, 16, 64, 256))
    room = max(16, min(32 * draw.most, 2**21 // (batch * kv_heads)))
    lengths = [pick((0, 1, draw.size(1, room), draw.size(1, room), draw.size(1, room))) for _ in range(batch)]
    length = max(16, *lengths)
    kind, spread = pick(("none", "cache", "head", "token", "token")), pick((0.5, 1.0, 4.0))
    kind = "none" if cache == dtype else kind
    sides = [_side(draw, cache, kind, (batch, kv_heads, length, head_dim), page) for _ in range(2)]
    scale = pick((None, None, 0.05, 0.25))
    factor = head_dim**-0.5 if scale is None else scale
    # Scores with a standard deviation of `spread`, whatever the sizes of keys are.
    size = spread / (factor * head_dim**0.5 * float(sides[0].values.square().mean().sqrt()) + 1e-9)
    q = torch.randn((batch, seq_q, kv_heads * group, head_dim), generator=draw.generator, device=device) * size
    q = q.clamp_(-6e4, 6e4).to(dtype).transpose(1, 2)
    lens = torch.tensor(lengths, dtype=torch.int32, device=device)
    options: dict[str, Any] = {"scale": scale}
    table = None
    if page is not None:
        pages = -(-length // page)
        order = torch.randperm(batch * pages, generator=draw.generator, device=device)
        table = order.view(batch, pages).to(torch.int32)
    stored = [side.stored(table, page) for side in sides]
    if kind != "none":
        options |= {"k_scale": stored[0][1], "v_scale": stored[1][1]}
    out = cuda_llm_ops.flash_decode(q, stored[0][0], stored[1][0], lens, table, **options)
    allowed = torch.zeros(q.shape, dtype=torch.float64, device=device)
    exact = _attention(q, sides, lens, factor, torch.float64, allowed)
    plain = _library(q, sides, lens, factor) if cache == dtype else _attention(q, sides, lens, factor, torch.float32)
    found = measure(out, exact, plain.to(dtype))
    share = float(((out.double() - exact).abs() / allowed).max())
    right = share <= 1.0  # and no NaN
    what = (
        f"{batch}x{kv_heads * group}/{kv_heads}x{head_dim}, {seq_q} queries, lengths {lengths[:6]}, page {page}, "
        f"{str(cache)[6:]}, scales {kind}, scale {scale}, {str(dtype)[6:]}"
    )
    said = f"{share:.3g} of what is allowed at the worst element, {found.frobenius:.2e} of the whole"
    errors = pairs_of(found.frobenius, found.library_frobenius, out.numel())
    where = "contiguous" if page is None else "pages"
    wide = "" if cache == dtype else ", float32" if dtype == torch.float32 else ", 16 bits"
    return Found(f"{str(cache)[6:]}, {where}{wide}", what, right, said, ratio_of(errors), errors)


@dataclass(frozen=True)
class Side:
    """Keys or values: numbers (batch, kv_heads, length, head_dim), and a scale of each number's token."""

    numbers: Tensor
    along: Tensor
    scale: Tensor | None
    """As it is given: (), (kv_heads,), or of `along`'s shape."""

    @property
    def values(self) -> Tensor:
        return self.numbers.float() * self.along[..., None]

    def exact(self, dtype: torch.dtype) -> Tensor:
        return self.numbers.float().to(dtype) * self.along.to(dtype)[..., None]

    def stored(self, table: Tensor | None, page: int | None) -> tuple[Tensor, Tensor | None]:
        """(numbers, scale) in the form of a call."""
        if table is None or page is None:
            return self.numbers, self.scale
        own = self.scale if self.scale is not None and self.scale.dim() == 3 else None
        bits = torch.uint8 if self.numbers.itemsize == 1 else torch.int16
        pooled = _in_pages(self.numbers.view(bits), table, page).view(self.numbers.dtype)
        return pooled, self.scale if own is None else _in_pages(own[..., None], table, page)[..., 0]


def _in_pages(one: Tensor, table: Tensor, page: int) -> Tensor:
    """(batch, kv_heads, length, width) as a pool (pages, page, kv_heads, width) in the order of the table."""
    batch, heads, length, width = one.shape
    count = table.shape[1]
    whole = torch.nn.functional.pad(one, (0, 0, 0, count * page - length))
    apart = whole.view(batch, heads, count, page, width).permute(0, 2, 3, 1, 4).reshape(-1, page, heads, width)
    pool = torch.empty_like(apart)
    pool[table.flatten().long()] = apart
    return pool


def _side(draw: Drawer, cache: torch.dtype, kind: str, shape: tuple[int, ...], page: int | None) -> Side:
    top, pick = 448.0 if cache == torch.float8_e4m3fn else 127.0, draw.choice.choice
    wide = torch.randn(shape, generator=draw.generator, device=draw.device)
    if cache.itemsize == 2:
        return Side((wide * pick((0.3, 1.0, 30.0))).to(cache), torch.ones(shape[:3], device=draw.device), None)
    wide *= pick((10.0, 100.0)) / 3
    wide = wide.clamp_(-top, top)
    numbers = (wide if cache.is_floating_point else wide.round()).to(cache)
    octaves = pick((0.5, 2.0))

    def scales(*size: int) -> Tensor:
        drawn = torch.rand(size, generator=draw.generator, device=draw.device)
        return 0.02 * 2.0 ** (octaves * (2 * drawn - 1))

    if kind == "none":
        return Side(numbers, torch.ones(shape[:3], device=draw.device), None)
    if kind == "token":
        own = scales(*shape[:3])
        own[scales(*shape[:3]) < 0.01 * 2**0.05] = 0.0  # a few
        return Side(numbers, own, own)
    own = scales() if kind == "cache" else scales(shape[1])
    return Side(numbers, (own if kind == "cache" else own[None, :, None]).expand(shape[:3]), own)


def _attention(
    q: Tensor, sides: Sequence[Side], lens: Tensor, scale: float, dtype: torch.dtype, allowed: Tensor | None = None
) -> Tensor:
    """Plain, in `dtype` throughout, one sequence after the other; fills `allowed` with the largest right errors."""
    out = torch.zeros(q.shape, dtype=dtype, device=q.device)
    group, seq_q = q.shape[1] // sides[0].numbers.shape[1], q.shape[2]
    for one, length in enumerate(lens.tolist()):
        if length:
            keys, values = (
                replace(side, numbers=side.numbers[one, :, :length], along=side.along[one, :, :length])
                for side in sides
            )
            rows = q[one].to(dtype).unflatten(0, (-1, group)) * scale
            scores = rows.flatten(1, 2) @ keys.exact(dtype).mT
            last = length - seq_q + torch.arange(seq_q, device=q.device)
            hidden = (torch.arange(length, device=q.device) > last[:, None]).repeat(group, 1)
            peak = scores.abs().amax(-1, keepdim=True)
            weights = scores.masked_fill_(hidden, -math.inf).softmax(-1).nan_to_num(0.0)
            v = values.exact(dtype)
            out[one] = (weights @ v).view(*rows.shape[:3], -1).flatten(0, 1)
            if allowed is not None:
                bound = _bound(weights, values, v, peak, q.dtype)
                allowed[one] = bound.view(*rows.shape[:3], -1).flatten(0, 1)
    if allowed is not None:
        eps, least = torch.finfo(q.dtype).eps, torch.finfo(q.dtype).smallest_normal
        allowed += 0.51 * eps * out.abs() + eps * least + FLOAT32 * least
    return out


def _library(q: Tensor, sides: Sequence[Side], lens: Tensor, scale: float) -> Tensor:
    """SDPA in q's dtype, one sequence after the other; a query that sees no key has zeros."""
    out = torch.zeros_like(q)
    group, seq_q = q.shape[1] // sides[0].numbers.shape[1], q.shape[2]
    for one, length in enumerate(lens.tolist()):
        keys, values = (side.numbers[one, None, :, :length].repeat_interleave(group, 1) for side in sides)
        seen = torch.arange(length, device=q.device) <= length - seq_q + torch.arange(seq_q, device=q.device)[:, None]
        some = seen.any(1)
        if bool(some.any()):
            rows = torch.nn.functional.scaled_dot_product_attention(
                q[one, None, :, some], keys, values, seen[some], scale=scale
            )
            out[one, :, some] = rows[0]
    return out


def _bound(weights: Tensor, values: Side, v: Tensor, peak: Tensor, dtype: torch.dtype) -> Tensor:
    """The largest error of a row before its rounding: a score is off by some units of its products, and so its weight.

    Roundings of the sums over tokens add up as a random walk. With 16-bit queries the product of weight and scale is
    also rounded: to bfloat16 where the cache is of that dtype, else to float16, below 2^-14 of a row's largest to
    multiples of 2^-24.
    """
    size = weights @ v.abs()
    units = FLOAT32 * (UNITS + UNITS * peak + v.shape[1] ** 0.5)
    if dtype == torch.float32:
        return size * units
    small = 2.0**-25 * values.along.double().amax(-1)[:, None] * values.numbers.float().abs().sum(1).double()
    rounding = 2.0**-8 if values.numbers.dtype == torch.bfloat16 else 2.0**-11
    return size * (rounding + units) * 1.1 + 1.1 * small[:, None]
