"""Random caches for flash_decode, contiguous and paged, and what it must give on them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import hypothesis.strategies as st
import ops_reference as reference
import torch
from torch import Tensor

HEAD_DIMS = (1, 8, 16, 33, 40, 64, 64, 72, 96, 128, 128, 128, 129, 136, 192, 256)
LENGTHS = (0, 1, 2, 15, 16, 17, 63, 64, 65, 100, 127, 128, 129, 200, 257, 300, 513)
PAGE_SIZES = (1, 5, 8, 16, 32, 48, 64, 256)


@dataclass
class Decode:
    """A call, and each sequence's keys and values in order: (kv_heads, length, head_dim)."""

    arguments: dict[str, Any]
    keys: list[Tensor] = field(repr=False)
    values: list[Tensor] = field(repr=False)
    what: str = ""

    def __repr__(self) -> str:
        q, k, table = (self.arguments.get(name) for name in ("q", "k_cache", "block_table"))
        assert isinstance(q, Tensor)
        assert isinstance(k, Tensor)
        return (
            f"Decode({self.what}: {str(q.dtype).removeprefix('torch.')} q {tuple(q.shape)} strides {q.stride()}, "
            f"cache {tuple(k.shape)} strides {k.stride()}, lengths {self.arguments['cache_lens'].tolist()}, table "
            f"{None if table is None else tuple(table.shape)}, scale {self.arguments.get('scale')})"
        )

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:  # what hypothesis prints, without every element
        printer.text(repr(self))


def assert_right(out: Tensor, case: Decode) -> None:
    """Fail unless `out` is right, each query against the keys that it sees."""
    q, scale = case.arguments["q"], case.arguments.get("scale")
    assert out.shape == q.shape
    assert out.dtype == q.dtype
    assert out.is_contiguous()
    for b, (keys, values) in enumerate(zip(case.keys, case.values, strict=True)):
        for i in range(q.shape[2]):
            seen = max(0, keys.shape[1] - (q.shape[2] - 1 - i))
            k, v = keys[None, :, :seen], values[None, :, :seen]
            one = slice(b, b + 1), slice(None), slice(i, i + 1)
            reference.assert_right(out[one], reference.attention("flash_attention", q[one], k, v, False, scale))


def contiguous(keys: list[Tensor], capacity: int, *, seq_first: bool, pad: int = 0, behind: float = math.nan) -> Tensor:
    """(batch, kv_heads, capacity, head_dim), NaN (or `behind`) behind each length, `pad` elements between rows."""
    kv_heads, _, head_dim = keys[0].shape
    shape = (len(keys), capacity, kv_heads) if seq_first else (len(keys), kv_heads, capacity)
    cache = torch.full((*shape, head_dim + pad), behind, dtype=keys[0].dtype, device=keys[0].device)[..., :head_dim]
    cache = cache.transpose(1, 2) if seq_first else cache
    for b, one in enumerate(keys):
        cache[b, :, : one.shape[1]] = one
    return cache


def paged(
    keys: list[Tensor], table: Tensor, page_size: int, pages: int, *, head_first: bool, behind: float = math.nan
) -> Tensor:
    """(pages, page_size, kv_heads, head_dim), NaN (or `behind`) wherever no key lies."""
    kv_heads, _, head_dim = keys[0].shape
    shape = (pages, kv_heads, page_size) if head_first else (pages, page_size, kv_heads)
    pool = torch.full((*shape, head_dim), behind, dtype=keys[0].dtype, device=keys[0].device)
    pool = pool.transpose(1, 2) if head_first else pool
    for b, one in enumerate(keys):
        for first in range(0, one.shape[1], page_size):
            part = one[:, first : first + page_size].transpose(0, 1)
            pool[int(table[b, first // page_size]), : part.shape[0]] = part
    return pool


def random_tables(lengths: list[int], page_size: int, extra: int, generator: torch.Generator) -> tuple[Tensor, int]:
    """A table of pages in random order, unused entries out of any range, and how many pages the pool has."""
    needed = [-(-length // page_size) for length in lengths]
    pages = sum(needed) + 1 + extra
    order = torch.randperm(pages, generator=generator, dtype=torch.int64).to(torch.int32)
    table = torch.full((len(lengths), max(needed) + extra), -(2**31), dtype=torch.int32)
    start = 0
    for b, count in enumerate(needed):
        table[b, :count] = order[start : start + count]
        start += count
    return table, pages


def small(
    dtype: torch.dtype,
    lengths: list[int],
    head_dim: int,
    page_size: int | None = None,
    kv_heads: int = 2,
    group: int = 3,
    seq_q: int = 2,
    capacity: int = 0,
) -> Decode:
    """A call that takes no time, on the CPU. `capacity` is that of a table of pages, most of which nobody needs."""
    generator = torch.Generator().manual_seed(len(lengths))

    def values(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator).to(dtype)

    keys, worth = ([values(kv_heads, length, head_dim) for length in lengths] for _ in range(2))
    arguments: dict[str, Any] = {"q": values(len(lengths), kv_heads * group, seq_q, head_dim)}
    if page_size is None:
        arguments["k_cache"] = contiguous(keys, max(lengths) + 1, seq_first=False)
        arguments["v_cache"] = contiguous(worth, max(lengths) + 1, seq_first=True)
    else:
        table, pages = random_tables(lengths, page_size, 0, generator)
        arguments["k_cache"] = paged(keys, table, page_size, pages, head_first=False)
        arguments["v_cache"] = paged(worth, table, page_size, pages, head_first=False)
        more = max(0, capacity // page_size - table.shape[1])
        arguments["block_table"] = torch.nn.functional.pad(table, (0, more), value=-1)
    arguments["cache_lens"] = torch.tensor(lengths, dtype=torch.int32)
    return Decode(arguments, keys, worth)


def kernels() -> dict[str, dict[str, Any]]:
    """One small call of everything that flash_decode tells apart on a Hopper card for 16-bit floats.

    The sizes of heads and of groups that have kernels; in clusters, evenly cut (where the capacity is large, or there
    are many units), and without TMA (pages of 1); what has no tensor cores.
    """
    calls: dict[str, dict[str, Any]] = {}
    for head_dim in (64, 128, 192):
        for rows in (6, 12):
            for page_size in (None, 1, 16, 64, 256):
                name = f"d{head_dim}-{rows}rows-{'in-order' if page_size is None else f'p{page_size}'}"
                calls[name] = {"lengths": [700], "head_dim": head_dim, "page_size": page_size, "group": rows // 2}
                if page_size is not None and page_size > 1:
                    calls[f"{name}-even"] = calls[name] | {"lengths": [700, 0, 77], "capacity": 2**16}
        for rows in (24, 40) if head_dim < 192 else ():
            words = {"head_dim": head_dim, "group": rows // 2}
            calls[f"d{head_dim}-{rows}rows-p16-even"] = {
                "lengths": [700, 0, 77],
                "page_size": 16,
                "capacity": 2**16,
            } | words
            calls[f"d{head_dim}-{rows}rows-40-sequences"] = {
                "lengths": [37 * i % 150 for i in range(40)],
                "kv_heads": 4,
            } | words
    many = {"head_dim": 128, "seq_q": 1}
    return calls | {
        "d33": {"lengths": [70, 0, 16], "head_dim": 33},
        "20rows": {"lengths": [300], "head_dim": 128, "group": 10},
        "very-large": {"lengths": [700], "head_dim": 128, "page_size": 16, "capacity": 2**20},
        "34-sequences": {"lengths": [37 * i % 150 for i in range(34)], "kv_heads": 4, **many},
        "40-sequences": {"lengths": [37 * i % 150 for i in range(40)], "kv_heads": 8, **many},
        "40-sequences-p64": {"lengths": [37 * i % 150 for i in range(40)], "kv_heads": 8, "page_size": 64, **many},
        "64-units": {"lengths": [256] * 8, "kv_heads": 8, "page_size": 16, "capacity": 2**13, **many},
        "64-units-24rows": {
            "lengths": [256] * 8,
            "kv_heads": 8,
            "page_size": 16,
            "capacity": 2**13,
            **many,
            "group": 24,
        },
        "70-sequences": {"lengths": [37 * i % 150 for i in range(70)], "kv_heads": 4, **many},
        "70-sequences-p16": {"lengths": [37 * i % 150 for i in range(70)], "kv_heads": 4, "page_size": 16, **many},
    }


@st.composite
def decodes(draw: st.DrawFn, device: str) -> Decode:
    """Valid calls, with every layout, length and group that the kernels tell apart."""
    dtype = draw(st.sampled_from((torch.float16, torch.bfloat16, torch.float16, torch.bfloat16, torch.float32)))
    batch, kv_heads = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    group = draw(st.sampled_from((1, 1, 2, 3, 4, 7, 8, 16)))
    seq_q = draw(st.sampled_from((1, 1, 1, 2, 3, 5, 9)))
    head_dim = draw(st.sampled_from(HEAD_DIMS))
    lengths = [draw(st.sampled_from(LENGTHS)) for _ in range(batch)]
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32 - 1)))
    spread = draw(st.sampled_from((1.0, 1.0, 8.0, 0.0)))

    def values(*shape: int) -> Tensor:
        return (torch.randn(shape, generator=generator) * spread).to(dtype).to(device)

    keys = [values(kv_heads, length, head_dim) for length in lengths]
    worth = [values(kv_heads, length, head_dim) for length in lengths]
    q = values(batch, seq_q, kv_heads * group, head_dim).transpose(1, 2)
    arguments: dict[str, Any] = {"q": q if draw(st.booleans()) else q.contiguous()}
    arguments["cache_lens"] = torch.tensor(lengths, dtype=torch.int32, device=device)
    if draw(st.booleans()):
        arguments["scale"] = draw(st.one_of(st.none(), st.sampled_from((0.0, 0.25, 1.0, 2.0))))
    if draw(st.booleans()):
        page_size = draw(st.sampled_from(PAGE_SIZES))
        head_first = draw(st.booleans())
        table, pages = random_tables(lengths, page_size, draw(st.integers(0, 3)), generator)
        arguments["k_cache"] = paged(keys, table, page_size, pages, head_first=head_first)
        arguments["v_cache"] = paged(worth, table, page_size, pages, head_first=draw(st.booleans()))
        arguments["block_table"] = table.to(device)
        return Decode(arguments, keys, worth, f"pages of {page_size}")
    seq_first, pad = draw(st.booleans()), draw(st.sampled_from((0, 0, 8, 3)))
    capacity = max(lengths) + draw(st.sampled_from((0, 1, 7, 64, 1000)))
    arguments["k_cache"] = contiguous(keys, capacity, seq_first=seq_first, pad=pad)
    arguments["v_cache"] = contiguous(worth, capacity, seq_first=seq_first, pad=draw(st.sampled_from((0, 8))))
    return Decode(arguments, keys, worth, "contiguous")
