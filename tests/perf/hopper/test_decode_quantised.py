"""Decode with 8-bit caches on a Hopper card: against the read bandwidth, and against our own decode in 16 bits.

Bandwidth counts the 8-bit cache, its scales, and the queries. Caches of 256 MB and more must also be 1.85 times as fast
as our 16-bit decode of the same lengths, in the same run.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
from _pytest.mark import ParameterSet

from perfsuite import Decode, Perf
from perfsuite.problems.base import Inputs
from perfsuite.problems.quantise import dequantised

pytestmark = [pytest.mark.gpu(min_capability=(9, 0))]

MOST_READ = ((256 << 20, 0.95), (128 << 20, 0.91), (64 << 20, 0.84))  # bytes of a cache, and its share of the bandwidth
SHAPES = (
    (1, 32, 8, 8192),
    (1, 32, 8, 32768),
    (8, 32, 8, 4096),
    (64, 32, 8, 512),
    (8, 32, 8, 8192),
    (64, 32, 8, 1024),
    (1, 32, 8, 131072),
    (8, 64, 8, 16384),
    (256, 32, 8, 1024),
    (64, 32, 8, 8192),
)


def case(batch: int, heads: int, kv_heads: int, length: int, page_size: int | None = None) -> ParameterSet:
    """Held against the read bandwidth where the cache is large enough for a goal."""
    bytes_ = 2 * batch * kv_heads * length * 128
    share = next((share for least, share in MOST_READ if bytes_ >= least), None)
    marks = [] if share is None else [pytest.mark.roofline_target(at_least=share, bandwidth="read")]
    name = f"{batch}x{length}-{heads}of{kv_heads}" + ("" if page_size is None else f"-{page_size}")
    return pytest.param(batch, heads, kv_heads, length, page_size, marks=marks, id=name)


CASES = [*(case(*shape) for shape in SHAPES), *(case(8, 32, 8, 16384, page) for page in (16, 64, 256))]
LARGE = [shape for shape in SHAPES if 2 * shape[0] * shape[2] * shape[3] * 128 >= MOST_READ[0][0]]
both_caches = pytest.mark.parametrize("cache", ["float8_e4m3fn", "int8"])


@pytest.mark.correctness(against="dequantised")
@pytest.mark.perf_target(against="sdpa", at_least=1.0)
@both_caches
@pytest.mark.parametrize("scales", ["head", "token"])
@pytest.mark.parametrize(("batch", "heads", "kv_heads", "length", "page_size"), CASES)
def test_bandwidth(
    batch: int,
    heads: int,
    kv_heads: int,
    length: int,
    page_size: int | None,
    scales: str,
    cache: str,
    perf: Perf,
    ops: ModuleType,
) -> None:
    """SDPA takes the cache in 16 bits, into which its call has to bring it."""
    problem = Decode(
        batch, heads, length, 128, kv_heads=kv_heads, page_size=page_size, cache_dtype=cache, cache_scales=scales
    )
    perf(problem, ops.flash_decode)


@pytest.mark.correctness
@pytest.mark.perf_target(at_least=1.85)
@both_caches
@pytest.mark.parametrize(("batch", "heads", "kv_heads", "length"), LARGE)
def test_against_16_bits(
    batch: int, heads: int, kv_heads: int, length: int, cache: str, perf: Perf, ops: ModuleType
) -> None:
    """Of the same keys and values, of which each side reads its own cache."""
    problem = Decode(batch, heads, length, 128, kv_heads=kv_heads, cache_dtype=cache)

    def arguments(generator: Any) -> tuple[Any, ...]:
        inputs = problem.inputs(generator)
        (q, k, v, lens), (k_scale, v_scale) = inputs.args, inputs.kwargs.values()
        wide = (
            dequantised(numbers, scale, problem.head_axis, q.dtype) for numbers, scale in ((k, k_scale), (v, v_scale))
        )
        return q, k, v, lens, k_scale, v_scale, *wide

    def in_8_bits(q: Any, k: Any, v: Any, lens: Any, k_scale: Any, v_scale: Any, *_: Any) -> Any:
        return ops.flash_decode(q, k, v, lens, k_scale=k_scale, v_scale=v_scale)

    def in_16_bits(q: Any, k: Any, v: Any, lens: Any, k_scale: Any, v_scale: Any, *wide: Any) -> Any:
        return ops.flash_decode(q, *wide, lens)

    def right(q: Any, k: Any, v: Any, lens: Any, k_scale: Any, v_scale: Any, *_: Any) -> Any:
        return problem.reference(Inputs((q, k, v, lens), {"k_scale": k_scale, "v_scale": v_scale}))

    perf(in_8_bits, args=arguments, against=in_16_bits, reference=right, bytes=problem.bytes, flops=problem.flops)
