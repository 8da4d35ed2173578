"""FP8 products and quantisers on a Hopper card.

Products are held against torch's own, against ours with one scale, against the read bandwidth where rows are few, and,
in groups, against one product of the same work. Quantisers are held against torch.compile and the copy bandwidth.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
from _pytest.mark import ParameterSet

from perfsuite import Fp8Gemm, GroupedGemm, Perf
from perfsuite.problems.base import Inputs
from perfsuite.problems.fp8 import values_of

pytestmark = [pytest.mark.gpu(min_capability=(9, 0)), pytest.mark.correctness]

SQUARES = [(size, size, size) for size in (1024, 2048, 4096, 8192)]
LAYERS = [(4096, 7168, 2048), (4096, 7168, 16384), (2048, 28672, 4096), (4096, 4096, 14336), (128, 7168, 2048)]
WEIGHTS = [(4096, 7168), (8192, 8192), (28672, 4096), (28672, 8192)]  # 29, 67, 117 and 235 MB
LEAST_SHARE = ((110 << 20, 0.90), (60 << 20, 0.85), (28 << 20, 0.75))  # bytes of a weight, and its share of bandwidth
TOP = 448.0


def named(shapes: list[tuple[int, ...]], *marks: Any) -> list[ParameterSet]:
    return [pytest.param(*shape, marks=marks, id="x".join(map(str, shape))) for shape in shapes]


sizes = pytest.mark.parametrize(("m", "n", "k"), named([*SQUARES, *LAYERS]))


@pytest.mark.perf_target(against="scaled_mm", at_least=1.0)
@pytest.mark.perf_target(against="scaled_mm:tuned", at_least=1.0)
@pytest.mark.parametrize("fast", [False, True], ids=["promoted", "fast"])
@sizes
def test_one_scale(m: int, n: int, k: int, fast: bool, perf: Perf, ops: ModuleType) -> None:
    """Promoted against promoted, fast against fast."""
    perf(Fp8Gemm(m, n, k, fast_sums=fast), ops.fp8_gemm)


@pytest.mark.perf_target(against="scaled_mm", at_least=1.0)
@sizes
def test_scales_of_rows(m: int, n: int, k: int, perf: Perf, ops: ModuleType) -> None:
    perf(Fp8Gemm(m, n, k, scales="row"), ops.fp8_gemm)


def against_one_scale(problem: Fp8Gemm, perf: Perf, ops: ModuleType) -> None:
    """The same numbers, with a scale for each row or block that all are equal: both sides have one right answer."""
    single = Fp8Gemm(problem.m, problem.n, problem.k)

    def arguments(generator: Any) -> tuple[Any, ...]:
        a, b, scale_a, scale_b = single.inputs(generator).args
        shapes = [one.shape for one in problem.inputs(generator).args[2:]]
        rows, columns = (one.expand(shape) for one, shape in zip((scale_a, scale_b), shapes, strict=True))
        # Blocks of a lie column-major, as in the problem.
        rows = rows.mT.contiguous().mT if rows.dim() == 2 else rows.contiguous()
        return a, b, scale_a, scale_b, rows, columns.contiguous()

    def ours(a: Any, b: Any, scale_a: Any, scale_b: Any, rows: Any, columns: Any) -> Any:
        return ops.fp8_gemm(a, b, rows, columns)

    def with_one_scale(a: Any, b: Any, scale_a: Any, scale_b: Any, rows: Any, columns: Any) -> Any:
        return ops.fp8_gemm(a, b, scale_a, scale_b)

    def right(*operands: Any) -> Any:
        return single.reference(Inputs(operands[:4]))

    sides = {"args": arguments, "against": with_one_scale, "reference": right}
    perf(ours, **sides, flops=problem.flops, bytes=problem.bytes)


@pytest.mark.perf_target(at_least=0.97)
@sizes
def test_rows_against_one_scale(m: int, n: int, k: int, perf: Perf, ops: ModuleType) -> None:
    against_one_scale(Fp8Gemm(m, n, k, scales="row"), perf, ops)


@pytest.mark.perf_target(at_least=0.93)
@sizes
def test_blocks_against_one_scale(m: int, n: int, k: int, perf: Perf, ops: ModuleType) -> None:
    against_one_scale(Fp8Gemm(m, n, k, scales="block"), perf, ops)


@pytest.mark.perf_target(against="scaled_mm", at_least=1.0)
@sizes
def test_scales_of_blocks(m: int, n: int, k: int, perf: Perf, ops: ModuleType) -> None:
    perf(Fp8Gemm(m, n, k, scales="block"), ops.fp8_gemm)


@pytest.mark.perf_target(at_least=1.5)
@pytest.mark.parametrize(("m", "n", "k"), named([*SQUARES[2:], *LAYERS[:4]]))
def test_against_16_bits(m: int, n: int, k: int, perf: Perf, ops: ModuleType) -> None:
    """Our own product of the same values in bfloat16, which it gets already widened."""
    import torch

    problem = Fp8Gemm(m, n, k, scales="row")

    def arguments(generator: Any) -> tuple[Any, ...]:
        a, b, scale_a, scale_b = problem.inputs(generator).args
        wide = (values_of(one, scale, 1, torch.float32).bfloat16() for one, scale in ((a, scale_a), (b, scale_b)))
        return a, b, scale_a, scale_b, *wide

    def in_8_bits(a: Any, b: Any, scale_a: Any, scale_b: Any, left: Any, right: Any) -> Any:
        return ops.fp8_gemm(a, b, scale_a, scale_b)

    def in_16_bits(a: Any, b: Any, scale_a: Any, scale_b: Any, left: Any, right: Any) -> Any:
        return ops.gemm(left, right.mT)

    def right(*given: Any) -> Any:
        return problem.reference(Inputs(given[:4]))

    sides = {"args": arguments, "against": in_16_bits, "reference": right}
    perf(in_8_bits, **sides, flops=problem.flops, bytes=problem.bytes)


def few(m: int, n: int, k: int) -> ParameterSet:
    share = next(share for least, share in LEAST_SHARE if n * k >= least)
    marks = pytest.mark.roofline_target(at_least=share, bandwidth="read")
    return pytest.param(m, n, k, marks=marks, id=f"{m}x{n}x{k}")


@pytest.mark.perf_target(against="scaled_mm", at_least=1.5)
@pytest.mark.parametrize(("m", "n", "k"), [few(m, n, k) for n, k in WEIGHTS for m in (1, 16, 64)])
def test_few_rows(m: int, n: int, k: int, perf: Perf, ops: ModuleType) -> None:
    perf(Fp8Gemm(m, n, k, scales="row"), ops.fp8_gemm)


@pytest.mark.perf_target(at_least=0.95)
@pytest.mark.parametrize(
    ("groups", "rows", "n", "k"), named([(8, 512, 4096, 7168), (4, 2048, 7168, 2048), (16, 256, 4096, 4096)])
)
@pytest.mark.parametrize("scales", ["row", "block"])
@pytest.mark.parametrize("masked", [False, True], ids=["contiguous", "masked"])
def test_groups(groups: int, rows: int, n: int, k: int, masked: bool, scales: str, perf: Perf, ops: ModuleType) -> None:
    """Against one product of all rows, with the weight that here every group has a copy of."""
    import torch

    whole = Fp8Gemm(groups * rows, n, k, scales=scales)

    def arguments(generator: Any) -> tuple[Any, ...]:
        a, b, scale_a, scale_b = whole.inputs(generator).args
        sizes = torch.arange(1, groups + 1, device=a.device, dtype=torch.int32) * rows
        if masked:  # every group is full
            a, scale_a = (one.unflatten(0, (groups, rows)) for one in (a, scale_a))
            sizes = torch.full_like(sizes, rows)
        copies = b.view(torch.uint8).expand(groups, *b.shape).contiguous().view(b.dtype)
        return a, copies, scale_a, scale_b.expand(groups, *scale_b.shape).contiguous(), sizes

    def numbered(a: Any, b: Any, scale_a: Any, scale_b: Any) -> tuple[Any, ...]:
        """Without groups."""
        return (a.flatten(0, 1), b[0], scale_a.flatten(0, 1), scale_b[0]) if masked else (a, b[0], scale_a, scale_b[0])

    def one_product(*given: Any) -> Any:
        return ops.fp8_gemm(*numbered(*given[:4])).view(*given[0].shape[:-1], n)

    def right(*given: Any) -> Any:
        return whole.reference(Inputs(numbered(*given[:4]))).view(*given[0].shape[:-1], n)

    perf(ops.fp8_grouped_gemm, args=arguments, against=one_product, reference=right, flops=whole.flops)


@pytest.mark.perf_target(against="scaled_mm", at_least=1.0)
@pytest.mark.parametrize(("groups", "rows", "n", "k"), named([(8, 512, 4096, 7168), (4, 2048, 7168, 2048)]))
def test_uneven_groups(groups: int, rows: int, n: int, k: int, perf: Perf, ops: ModuleType) -> None:
    perf(GroupedGemm(groups, rows, n, k), ops.fp8_grouped_gemm)


ROWS = [(8192, 8192), (16384, 8192), (32768, 4096)]  # 128 MB and more of bfloat16


@pytest.mark.perf_target(at_least=1.0)
@pytest.mark.roofline_target(at_least=0.90)
@pytest.mark.parametrize(("rows", "columns"), named(ROWS))
@pytest.mark.parametrize("kind", ["values", "rms_norm", "swiglu"])
def test_quantisers(kind: str, rows: int, columns: int, perf: Perf, ops: ModuleType) -> None:
    """With a scale a row, against the same formula by torch.compile."""
    import torch

    inputs = 2 if kind == "swiglu" else 1

    def arguments(generator: Any) -> tuple[Any, ...]:
        shapes = {"values": [], "rms_norm": [(columns,)], "swiglu": [(rows, columns)]}[kind]
        return tuple(
            torch.randn(shape, generator=generator, device=generator.device).bfloat16()
            for shape in [(rows, columns), *shapes]
        )

    def formula(x: Any, *other: Any, wide: torch.dtype = torch.float32) -> Any:
        y = x.to(wide)
        if kind == "rms_norm":
            y = y * (y.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * other[0].to(wide)
        if kind == "swiglu":
            y = y * y.sigmoid() * other[0].to(wide)
        scale = y.abs().amax(-1) / TOP
        return y / scale[:, None], scale

    # torch compiles a function for eight sizes at most, and runs it uncompiled for further ones: each test begins anew.
    torch.compiler.reset()

    @torch.compile(dynamic=False)
    def compiled(*given: Any) -> Any:
        quotient, scale = formula(*given)
        return quotient.clamp(-TOP, TOP).to(torch.float8_e4m3fn), scale

    ours = {"values": ops.quantize_fp8, "rms_norm": ops.rms_norm_fp8, "swiglu": ops.swiglu_fp8}[kind]

    def right(*given: Any) -> Any:
        return formula(*given, wide=torch.float64)

    bytes_ = rows * columns * (2 * inputs + 1) + rows * 4
    perf(ours, args=arguments, against=compiled, reference=right, bytes=bytes_)
