"""Decode of 2 to 16 query tokens on a Hopper card: nearly as fast as one token, and never slower than SDPA.

The cache is read once for all tokens of a sequence, so that one token and a few should take the same time. A tensor
core has 64 rows for the queries that share a key head, or 32 where the cache has 8 bits: with group times tokens at
most that many, tokens may cost a tenth. Beyond, the cache is read again.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

from perfsuite import Decode, Perf
from perfsuite.problems.base import Inputs

pytestmark = [pytest.mark.gpu(min_capability=(9, 0)), pytest.mark.correctness]

SHAPES = [(1, 32, 8, 131072), (8, 32, 8, 8192), (64, 32, 8, 4096), (8, 64, 8, 16384)]
TOKENS = (2, 4, 8, 16)
ROWS = {None: 64, "float8_e4m3fn": 32, "int8": 32}
"""Rows of queries that read the cache once, by its dtype."""
CASES = [(*shape, tokens, cache) for shape in SHAPES for tokens in TOKENS for cache in ROWS]
NEAR = [one for one in CASES if one[1] // one[2] * one[4] <= ROWS[one[5]]]
BEYOND = [one for one in CASES if one not in NEAR]


def sized(cases: list[tuple[Any, ...]]) -> Any:
    names = [f"{b}x{length}-{h}of{kv}-{tokens}-{cache or '16-bits'}" for b, h, kv, length, tokens, cache in cases]
    return pytest.mark.parametrize(("batch", "heads", "kv_heads", "length", "tokens", "cache"), cases, ids=names)


@pytest.mark.perf_target(at_least=1 / 1.1)
@sized(NEAR)
def test_against_one_token(
    batch: int,
    heads: int,
    kv_heads: int,
    length: int,
    tokens: int,
    cache: str | None,
    perf: Perf,
    ops: ModuleType,
) -> None:
    """The rival computes the newest token alone; both sides return that token's rows."""
    problem = Decode(batch, heads, length, 128, kv_heads=kv_heads, seq_q=tokens, cache_dtype=cache)
    scales = ("k_scale", "v_scale") if cache else ()

    def arguments(generator: Any) -> tuple[Any, ...]:
        inputs = problem.inputs(generator)
        return *inputs.args, *(inputs.kwargs[name] for name in scales)

    def named(given: tuple[Any, ...]) -> dict[str, Any]:
        return dict(zip(scales, given, strict=True))

    def all_tokens(q: Any, k: Any, v: Any, lens: Any, *given: Any) -> Any:
        return ops.flash_decode(q, k, v, lens, **named(given))[:, :, -1:]

    def one_token(q: Any, k: Any, v: Any, lens: Any, *given: Any) -> Any:
        return ops.flash_decode(q[:, :, -1:], k, v, lens, **named(given))

    def right(q: Any, k: Any, v: Any, lens: Any, *given: Any) -> Any:
        return problem.reference(Inputs((q, k, v, lens), named(given)))[:, :, -1:]

    perf(all_tokens, args=arguments, against=one_token, reference=right, flops=problem.flops, bytes=problem.bytes)


@pytest.mark.perf_target(against="sdpa", at_least=1.0)
@sized(BEYOND)
def test_against_sdpa(
    batch: int,
    heads: int,
    kv_heads: int,
    length: int,
    tokens: int,
    cache: str | None,
    perf: Perf,
    ops: ModuleType,
) -> None:
    problem = Decode(batch, heads, length, 128, kv_heads=kv_heads, seq_q=tokens, cache_dtype=cache)
    perf(problem, ops.flash_decode)
