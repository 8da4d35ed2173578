"""Decode on a Hopper card: one query token of each sequence against its cache, contiguous and in pages.

The contiguous cases are against what SDPA takes by itself there (cuDNN). The paged ones are against SDPA on the same
memory read in order, and against flash_decode itself on it: what following a table of pages costs. Caches that are far
larger than the L2 must be read at nearly the bandwidth of the fastest read of as many bytes in the same run.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
from _pytest.mark import ParameterSet

from perfsuite import Decode, Perf

LENGTHS = (1024, 8192, 32768, 131072)
MOST_CACHE_BYTES = 8 << 30  # the checks hold three copies of it, and fingerprints as large
MEMORY_BOUND_BYTES = 256 << 20
HEADS = ((32, 8), (32, 32), (64, 8))

pytestmark = [pytest.mark.gpu(min_capability=(9, 0)), pytest.mark.correctness(against="sdpa")]


def fitting(kv_heads: int) -> list[tuple[int, int]]:
    """(batch, length) of the caches that are not too large to be drawn, copied and checked in passing."""
    every = [(batch, length) for batch in (1, 8, 64, 256) for length in LENGTHS]
    return [(batch, length) for batch, length in every if 4 * batch * length * kv_heads * 128 <= MOST_CACHE_BYTES]


def decode(*values: int) -> ParameterSet:
    """batch, length, heads, kv_heads, and the size of a page where there are any: held against reads of its size
    too where the cache is no less than MEMORY_BOUND_BYTES."""
    batch, length, heads, kv_heads, *page = values
    marks = [pytest.mark.roofline_target(at_least=0.97, bandwidth="own_size")]
    bound = 4 * batch * length * kv_heads * 128 >= MEMORY_BOUND_BYTES
    name = "-".join([f"{batch}x{length}-{heads}of{kv_heads}", *map(str, page)])
    return pytest.param(*values, marks=marks if bound else [], id=name)


CASES = [decode(batch, length, *heads) for heads in HEADS for batch, length in fitting(heads[1])]
PAGED = [decode(batch, 8192, 32, 8, page) for batch in (1, 8, 64) for page in (16, 64, 256)]


@pytest.mark.perf_target(against="sdpa", at_least=0.98)
@pytest.mark.parametrize(("batch", "length", "heads", "kv_heads"), CASES)
def test_contiguous(batch: int, length: int, heads: int, kv_heads: int, perf: Perf, ops: ModuleType) -> None:
    perf(Decode(batch, heads, length, 128, kv_heads=kv_heads), ops.flash_decode)


@pytest.mark.perf_target(against="sdpa", at_least=0.98)
@pytest.mark.parametrize(("batch", "length", "heads", "kv_heads", "page_size"), PAGED)
def test_paged(batch: int, length: int, heads: int, kv_heads: int, page_size: int, perf: Perf, ops: ModuleType) -> None:
    perf(Decode(batch, heads, length, 128, kv_heads=kv_heads, page_size=page_size), ops.flash_decode)


@pytest.mark.perf_target(at_least=0.95)
@pytest.mark.parametrize("page_size", [64, 256])
@pytest.mark.parametrize(("batch", "length"), [(1, 8192), (64, 8192)], ids=["1", "64"])
def test_pages_against_their_memory_in_order(
    batch: int, length: int, page_size: int, perf: Perf, ops: ModuleType
) -> None:
    problem = Decode(batch, 32, length, 128, kv_heads=8, page_size=page_size)

    def in_order(q: Any, k: Any, v: Any, lens: Any, block_table: Any) -> Any:
        return ops.flash_decode(q, problem.in_memory(k), problem.in_memory(v), lens)

    perf(problem, ops.flash_decode, against=in_order)
