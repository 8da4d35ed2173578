"""The times of one case on the card at hand: ours, the library's, and what else the rules of a survey need.

Each side is a CUDA graph of calls over operands that are rotated past the L2 cache; the graphs are replayed in turn
(cuda_llm_ops.tune), so that clock and temperature are those of all. An interval is that of the median of the paired
ratios: between two of the nine in order, which hold it with a probability of 96 % (the binomial distribution's).
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from cuda_llm_ops import _C, flash_attention, flash_decode, gemm, tensor_core_gemm, tune
from cuda_llm_ops.plan_table import Product as Operands

from .draw import UNIT, Attention, Case, Decode, Product

ROUNDS = 9
INTERVAL = 1
"""Of the ratios in order, so many at either end lie outside of the interval."""
PLANS = 24
"""Of a product, by the cost model, where its regret is measured."""
SETS = 3 * tune.CACHE_BYTES
"""Bytes that the operands of all sets have together, if that takes no more than MOST_SETS."""
MOST_SETS = 256
"""Of operands: tiny problems are found in L2, by both sides."""
KEPT = 20 << 30
"""Bytes that torch's allocator may hold from one case to the next."""


def measured(case: Case, *, plans: bool) -> dict[str, Any]:
    """Seconds of a call: `ours`, and `library` or `read`; with the other fields of record.py.

    plans: also times the plans that the cost model puts first, if it is a product with plans.
    """
    if torch.cuda.memory_reserved() > KEPT:
        torch.cuda.empty_cache()  # else graphs and operands of other sizes pile up; after each case it would cost more
    if isinstance(case, Product):
        return _product(case, plans)
    return _attention(case) if isinstance(case, Attention) else _decode(case)


def timed(calls: Sequence[Callable[[int], object]], sets: Sequence[int]) -> list[list[float]]:
    """Seconds of a call in each round, of each of the calls; `sets` are the operands that each rotates through."""
    graphs = [tune.captured(call, count) for call, count in zip(calls, sets, strict=True)]
    every = tune.replays(graphs, ROUNDS)
    return [[seconds / count for seconds in of] for of, count in zip(every, sets, strict=True)]


def ratio(above: Sequence[float], below: Sequence[float]) -> dict[str, float]:
    """The median of the paired ratios, and its interval."""
    ratios = sorted(one / other for one, other in zip(above, below, strict=True))
    found = {"ratio": statistics.median(ratios), "low": ratios[INTERVAL], "high": ratios[-1 - INTERVAL]}
    return {name: round(value, 5) for name, value in found.items()}


def apart(ours: Tensor, other: Tensor) -> float:
    """The norm of the difference, as a part of the norm of the other's result."""
    difference = torch.linalg.vector_norm(ours.sub(other), dtype=torch.float32)
    return float(f"{float(difference / torch.linalg.vector_norm(other, dtype=torch.float32).clamp_min(1e-30)):.3g}")


def _count(bytes_: int) -> int:
    """Sets of operands of so many bytes that are rotated through."""
    return max(1, min(MOST_SETS, -(-SETS // bytes_)))


def _seconds(of: Sequence[float]) -> float:
    return float(f"{statistics.median(of):.5g}")


def _product(case: Product, plans: bool) -> dict[str, Any]:
    a_mn_major, b_mn_major = case.layout[0] == "t", case.layout[1] == "n"
    dtype = getattr(torch, case.dtype)
    once = 2 * (case.m * case.k + case.n * case.k + case.m * case.n)
    sets = tune.inputs(Operands(case.m, case.n, case.k, a_mn_major, b_mn_major), dtype)[: max(2, _count(once))]
    library, kernel = (torch.mm, gemm) if case.out == case.dtype else (_to_float32, tensor_core_gemm)
    count = len(sets)
    wrong = apart(kernel(*sets[0]), library(*sets[0]))
    calls = [lambda index: library(*sets[index]), lambda index: kernel(*sets[index])]
    theirs, own = timed(calls, [count, count])
    found: dict[str, Any] = {"library": _seconds(theirs), "ours": _seconds(own), **ratio(theirs, own), "apart": wrong}
    if plans and case.aligned and case.out == case.dtype:
        names = _C.gemm_plans(case.m, case.n, case.k, a_mn_major, b_mn_major, case.dtype)[:PLANS]
        if names:
            # The chosen one once more, beside the others: two times that were taken apart are of two clocks.
            _, chosen, *others = tune.in_turn(sets, ["", *names], ROUNDS)
            best = min(chosen, *others)
            found |= {"regret": round(chosen / best - 1, 5)}
            if best < chosen:
                found |= {"best_plan": names[others.index(best)]}
    return found


def _to_float32(a: Tensor, b: Tensor) -> Tensor:
    return torch.mm(a, b, out_dtype=torch.float32)


def _attention(case: Attention) -> dict[str, Any]:
    dtype = getattr(torch, case.dtype)

    def random(heads: int, tokens: int, dim: int) -> Tensor:
        return torch.randn(case.batch, heads, tokens, dim, device="cuda", dtype=dtype)

    def operands(dim: int) -> list[tuple[Tensor, Tensor, Tensor]]:
        once = 2 * case.batch * dim * 2 * (case.heads * case.seq_q + case.kv_heads * case.seq_kv)
        return [
            (
                random(case.heads, case.seq_q, dim),
                random(case.kv_heads, case.seq_kv, dim),
                random(case.kv_heads, case.seq_kv, dim),
            )
            for _ in range(_count(once))
        ]

    def sdpa(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        grouped = case.heads != case.kv_heads
        return F.scaled_dot_product_attention(q, k, v, is_causal=case.causal, enable_gqa=grouped)

    sets = operands(case.head_dim)
    wrong = apart(flash_attention(*sets[0], case.causal), sdpa(*sets[0]))
    calls: list[Callable[[int], object]] = [
        lambda index: sdpa(*sets[index]),
        lambda index: flash_attention(*sets[index], case.causal),
    ]
    counts = [len(sets), len(sets)]
    whole = -(-case.head_dim // UNIT) * UNIT
    if whole != case.head_dim:  # rows that begin anywhere: beside those of the next multiple of 16 bytes
        even = operands(whole)
        calls.append(lambda index: flash_attention(*even[index], case.causal))
        counts.append(len(even))
    theirs, own, *aligned = timed(calls, counts)
    found = {"library": _seconds(theirs), "ours": _seconds(own), **ratio(theirs, own), "apart": wrong}
    if aligned:
        found["of_aligned"] = ratio(own, aligned[0])["ratio"]
    return found


def _decode(case: Decode) -> dict[str, Any]:
    from perfsuite.machine import reads  # the plugin measures the card's ceilings

    dtype, dim = getattr(torch, case.dtype), case.head_dim
    generator = torch.Generator("cpu").manual_seed(case.length)
    low = case.length // 2 if case.ragged else case.length
    lengths = torch.randint(low, case.length + 1, (case.batch,), generator=generator, dtype=torch.int32)
    tokens = int(lengths.sum())
    bytes_ = 2 * (2 * tokens * case.kv_heads * dim + 2 * case.batch * case.heads * dim)
    count = _count(bytes_)
    lens = lengths.cuda()

    def cache() -> Tensor:
        if not case.page:
            return torch.randn(case.batch, case.kv_heads, case.length, dim, device="cuda", dtype=dtype)
        pages = case.batch * case.length // case.page
        return torch.randn(pages, case.page, case.kv_heads, dim, device="cuda", dtype=dtype)

    def table() -> tuple[Tensor, ...]:
        if not case.page:
            return ()
        each = case.length // case.page
        return (torch.randperm(case.batch * each, device="cuda", dtype=torch.int32).view(case.batch, each),)

    sets = [
        (torch.randn(case.batch, case.heads, 1, dim, device="cuda", dtype=dtype), cache(), cache(), lens, *table())
        for _ in range(count)
    ]
    shortest = int(lengths.argmin())
    wrong = apart(flash_decode(*sets[0])[shortest], _one_sequence(case, sets[0], shortest, int(lengths[shortest])))
    rivals = reads.reads_of(bytes_, SETS)
    places = [rivals.places] * len(rivals.calls)
    own, *every = timed([lambda index: flash_decode(*sets[index]), *rivals.calls], [count, *places])
    best = min(range(len(every)), key=lambda index: statistics.median(every[index]))
    return {
        "bytes": bytes_,
        "read": _seconds(every[best]),
        "read_kernel": rivals.names[best],
        "ours": _seconds(own),
        **ratio(every[best], own),
        "apart": wrong,
    }


def _one_sequence(case: Decode, operands: tuple[Tensor, ...], number: int, length: int) -> Tensor:
    """The attention of one sequence by torch, in float32."""
    q, k, v, _, *table = operands
    if table:
        k, v = (cache[table[0][number].long()].flatten(0, 1).transpose(0, 1) for cache in (k, v))
    else:
        k, v = k[number], v[number]
    group = case.heads // case.kv_heads
    k, v = (cache[:, :length].float().repeat_interleave(group, 0) for cache in (k, v))
    return F.scaled_dot_product_attention(q[number].float(), k, v)


@contextmanager
def prepared() -> Iterator[None]:
    """cuBLAS adds in float32 throughout, as these kernels do; both settings are as before afterwards."""
    matmul = torch.backends.cuda.matmul
    names = [f"allow_{name}_reduced_precision_reduction" for name in ("fp16", "bf16")]
    before = [getattr(matmul, name) for name in names]
    for name in names:
        setattr(matmul, name, False)
    try:
        yield
    finally:
        for name, value in zip(names, before, strict=True):
            setattr(matmul, name, value)
