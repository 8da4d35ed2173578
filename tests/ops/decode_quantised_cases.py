"""Random 8-bit caches for flash_decode with scales of every kind, and what it must give on them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import decode_cases as plain
import hypothesis.strategies as st
import ops_reference as reference
import torch
from torch import Tensor

CACHES = (torch.float8_e4m3fn, torch.int8)
SCALES = ("none", "cache", "head", "token", "token of all heads")
HEAD_DIMS = (1, 16, 33, 64, 64, 96, 112, 128, 128, 128, 128, 136, 256)
BEHIND = 0x7F  # NaN in e4m3, 127 in int8: what a kernel must not use


@dataclass(repr=False)
class Quantised(plain.Decode):
    """keys and values are dequantised, in float64; `numbers` are those of the values, `v_scales` (kv_heads, length)."""

    numbers: list[Tensor] = field(default_factory=list, repr=False)
    v_scales: list[Tensor] = field(default_factory=list, repr=False)


def assert_right(out: Tensor, case: Quantised) -> None:
    """Fail unless `out` is right, each query against the keys that it sees."""
    q, scale = case.arguments["q"], case.arguments.get("scale")
    assert out.shape == q.shape
    assert out.dtype == q.dtype
    assert out.is_contiguous()
    for b, (keys, values) in enumerate(zip(case.keys, case.values, strict=True)):
        for i in range(q.shape[2]):
            seen = max(0, keys.shape[1] - (q.shape[2] - 1 - i))
            one = slice(b, b + 1), slice(None), slice(i, i + 1)
            right = reference.attention(
                "flash_attention", q[one], keys[None, :, :seen], values[None, :, :seen], False, scale
            )
            more = rounding_of_small_weights(case, b, seen, q.shape[1])
            reference.assert_right(out[one], right._replace(tolerance=right.tolerance + more))


def rounding_of_small_weights(case: Quantised, b: int, seen: int, heads: int) -> Tensor:
    """A bound for the products of weight and scale that are subnormal where the largest of a row is 1 or more.

    (1, heads, 1, head_dim); the largest product is at most the largest scale.
    """
    numbers, scales = case.numbers[b][:, :seen].abs().nan_to_num(0.0), case.v_scales[b][:, :seen].abs()
    largest = scales.amax(1) if seen else scales.new_zeros(scales.shape[0])
    bound = 2.0**-25 * largest[:, None] * numbers.sum(1)
    return bound.repeat_interleave(heads // bound.shape[0], 0)[None, :, None]


def bytes_of(numbers: Tensor) -> Tensor:
    return numbers.view(torch.uint8)


def make(
    q: Tensor,
    numbers: tuple[list[Tensor], list[Tensor]],
    scales: tuple[list[Tensor], list[Tensor]],
    kind: str,
    *,
    page_size: int | None = None,
    head_first: bool = False,
    seq_first: bool = False,
    more: int = 0,
    seed: int = 0,
    scale: float | None = None,
) -> Quantised:
    """The call on q's device.

    `numbers`: of keys and of values, a (kv_heads, length, head_dim) of a cache's dtype for each sequence. `scales`:
    (kv_heads, length) each, float32, equal along what shares a scale by `kind`. `more`: keys (or pages) of room.
    """
    device, lengths = q.device, [one.shape[1] for one in numbers[0]]
    kv_heads, dtype = numbers[0][0].shape[0], numbers[0][0].dtype
    arguments: dict[str, Any] = {"q": q, "scale": scale}
    arguments["cache_lens"] = torch.tensor(lengths, dtype=torch.int32, device=device)
    table, pages = None, 0
    if page_size is not None:
        table, pages = plain.random_tables(lengths, page_size, more, torch.Generator().manual_seed(seed))
        arguments["block_table"] = table.to(device)

    def stored(one: list[Tensor], behind: float) -> Tensor:
        if page_size is None:
            return plain.contiguous(one, max(lengths) + more, seq_first=seq_first, behind=behind)
        assert table is not None
        return plain.paged(one, table, page_size, pages, head_first=head_first, behind=behind)

    for side, of_side, of_scales in (("k", numbers[0], scales[0]), ("v", numbers[1], scales[1])):
        arguments[f"{side}_cache"] = stored([bytes_of(one) for one in of_side], BEHIND).view(dtype).to(device)
        if kind == "none":
            continue
        if kind == "cache":
            given = of_scales[0][0, 0] if lengths[0] else torch.ones(())
        elif kind == "head":
            given = of_scales[0][:, 0] if lengths[0] else torch.ones(kv_heads)
        else:
            given = stored([one[..., None] for one in of_scales], math.nan)[..., 0]
        shape = given.shape
        if kind == "token of all heads":  # one scale in memory, for all
            given = given.narrow(1 if page_size is None else 2, 0, 1).contiguous()
        arguments[f"{side}_scale"] = given.to(device).expand(shape)
    keys, values = (
        [one.to(torch.float64) * of[..., None].to(torch.float64) for one, of in zip(side, worth, strict=True)]
        for side, worth in zip(numbers, scales, strict=True)
    )
    what = f"{str(dtype).removeprefix('torch.')} cache, scales: {kind}"
    return Quantised(arguments, keys, values, what, [one.to(torch.float64) for one in numbers[1]], list(scales[1]))


def drawn(
    generator: torch.Generator, dtype: torch.dtype, kv_heads: int, lengths: list[int], head_dim: int, spread: float
) -> list[Tensor]:
    """Normal numbers, the largest of a row near `spread`, saturated where the type ends."""
    top = 448.0 if dtype == torch.float8_e4m3fn else 127.0
    all_numbers = []
    for length in lengths:
        value = torch.randn(kv_heads, length, head_dim, generator=generator) * (spread / 3)
        value = value.clamp(-top, top)
        all_numbers.append((value if dtype.is_floating_point else value.round()).to(dtype))
    return all_numbers


def drawn_scales(
    generator: torch.Generator, kind: str, kv_heads: int, lengths: list[int], around: float, octaves: float
) -> list[Tensor]:
    """(kv_heads, length) each; between `around` / 2^octaves and `around` 2^octaves, with some zeros among tokens'."""

    def scales(*shape: int) -> Tensor:
        return around * 2.0 ** (octaves * (2 * torch.rand(*shape, generator=generator) - 1))

    if kind == "none":
        return [torch.ones(kv_heads, length) for length in lengths]
    if kind in ("cache", "head"):
        shared = scales(kv_heads if kind == "head" else 1).expand(kv_heads)
        if not lengths[0]:  # make() has no token to take it from
            shared = torch.ones(kv_heads)
        return [shared[:, None].repeat(1, length) for length in lengths]
    heads = kv_heads if kind == "token" else 1
    all_scales = []
    for length in lengths:
        one = scales(heads, length)
        one[torch.rand(heads, length, generator=generator) < 0.05] = 0.0
        all_scales.append(one.expand(kv_heads, length).contiguous())
    return all_scales


def small(
    dtype: torch.dtype,
    cache: torch.dtype,
    lengths: list[int],
    head_dim: int = 128,
    page_size: int | None = None,
    kind: str = "token",
    kv_heads: int = 2,
    group: int = 3,
    seq_q: int = 2,
    capacity: int = 0,
) -> Quantised:
    """A call that takes no time, on the CPU; `capacity` as of decode_cases.small()."""
    generator = torch.Generator().manual_seed(len(lengths))
    numbers = tuple(drawn(generator, cache, kv_heads, lengths, head_dim, 100.0) for _ in range(2))
    scales = tuple(drawn_scales(generator, kind, kv_heads, lengths, 0.02, 1.0) for _ in range(2))
    q = torch.randn(len(lengths), kv_heads * group, seq_q, head_dim, generator=generator).to(dtype)
    case = make(q, numbers, scales, kind, page_size=page_size, scale=None if kind != "none" else 0.002)
    if page_size is not None:
        table = case.arguments["block_table"]
        more = max(0, capacity // page_size - table.shape[1])
        case.arguments["block_table"] = torch.nn.functional.pad(table, (0, more), value=-1)
    return case


def kernels() -> dict[str, dict[str, Any]]:
    """One small call of everything that the kernels for 8-bit caches tell apart on a Hopper card."""
    calls: dict[str, dict[str, Any]] = {}
    for rows in (4, 6, 12, 24):
        for page_size in (None, 16, 128):
            for kind in ("head", "token"):
                name = f"{rows}rows-{'in-order' if page_size is None else f'p{page_size}'}-{kind}"
                calls[name] = {"lengths": [700], "page_size": page_size, "group": rows // 2, "kind": kind}
                if page_size is not None:
                    calls[f"{name}-even"] = calls[name] | {"lengths": [700, 0, 77], "capacity": 2**17}
    return calls | {
        "d33": {"lengths": [70, 0, 16], "head_dim": 33},
        "d64": {"lengths": [700], "head_dim": 64},
        "20rows": {"lengths": [300], "group": 10},
        "64-units-24rows": {
            "lengths": [256] * 8,
            "kv_heads": 8,
            "page_size": 16,
            "seq_q": 1,
            "group": 24,
            "capacity": 2**14,
        },
        "40-sequences-12rows": {"lengths": [37 * i % 150 for i in range(40)], "kv_heads": 8, "group": 6},
        "40-sequences": {"lengths": [37 * i % 150 for i in range(40)], "kv_heads": 8, "seq_q": 1},
        "70-sequences-p16": {"lengths": [37 * i % 150 for i in range(70)], "kv_heads": 4, "page_size": 16, "seq_q": 1},
    }


@st.composite
def decodes(draw: st.DrawFn, device: str) -> Quantised:
    """Valid calls, with every layout, length, group and kind of scale that the kernels tell apart."""
    dtype = draw(st.sampled_from((torch.float16, torch.bfloat16, torch.float16, torch.bfloat16, torch.float32)))
    cache, kind = draw(st.sampled_from(CACHES)), draw(st.sampled_from(SCALES))
    batch, kv_heads = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    group, seq_q = draw(st.sampled_from((1, 1, 2, 4, 7, 8, 16))), draw(st.sampled_from((1, 1, 1, 2, 3, 5, 9)))
    head_dim = draw(st.sampled_from(HEAD_DIMS))
    lengths = [draw(st.sampled_from(plain.LENGTHS)) for _ in range(batch)]
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32 - 1)))
    spread, octaves = draw(st.sampled_from((0.0, 10.0, 100.0, 1000.0))), draw(st.sampled_from((0.0, 2.0, 12.0)))
    numbers = tuple(drawn(generator, cache, kv_heads, lengths, head_dim, spread) for _ in range(2))
    k_scales = drawn_scales(generator, kind, kv_heads, lengths, 0.01, min(octaves, 2.0))
    v_scales = drawn_scales(generator, kind, kv_heads, lengths, 0.3, octaves)
    q = torch.randn(batch, seq_q, kv_heads * group, head_dim, generator=generator) * (0.01 if kind == "none" else 1.0)
    q = q.to(device, dtype).transpose(1, 2)
    return make(
        q if draw(st.booleans()) else q.contiguous(),
        numbers,
        (k_scales, v_scales),
        kind,
        page_size=draw(st.sampled_from((None, None, *plain.PAGE_SIZES))),
        head_first=draw(st.booleans()),
        seq_first=draw(st.booleans()),
        more=draw(st.sampled_from((0, 1, 3, 64))),
        seed=draw(st.integers(0, 2**31)),
        scale=draw(st.sampled_from((None, None, 0.0, 0.25))),
    )
