"""Products with 4- and 8-bit weights on a Hopper card.

Few rows are held against the read bandwidth; 64 rows against one row; 256 and 512 against our own 16-bit product of the
same weights, which it gets already widened. torch's kernels get the same numbers in their own packing.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
from _pytest.mark import ParameterSet

from perfsuite import Perf, WeightOnlyGemm
from perfsuite.problems.base import Inputs
from perfsuite.problems.weights import unpacked_tiles

pytestmark = [pytest.mark.gpu(min_capability=(9, 0)), pytest.mark.correctness]

WEIGHTS = [(8192, 8192), (28672, 4096), (28672, 8192), (36864, 12288)]  # 34, 59, 117 and 226 MB of 4 bits
LAYERS = [(4096, 4096), (28672, 4096), (4096, 14336), (8192, 8192)]
LEAST_SHARE = ((110e6, 0.88), (58e6, 0.80), (33e6, 0.65))  # bytes of 4-bit weights, and their share of the bandwidth
INT8_SHARE, INT8_BYTES = 0.85, 60e6


def read_case(m: int, n: int, k: int, **words: Any) -> ParameterSet:
    problem = WeightOnlyGemm(m, n, k, **words)
    weights = n * k * problem.bits // 8
    if problem.bits == 4:
        share = next(share for least, share in LEAST_SHARE if weights >= least)
    else:
        assert weights >= INT8_BYTES
        share = INT8_SHARE
    marks = pytest.mark.roofline_target(at_least=share, bandwidth="read")
    return pytest.param(problem, marks=marks, id=problem.name.replace(" ", "-"))


FEW = [
    *(read_case(m, n, k) for n, k in WEIGHTS for m in (1, 8, 16)),
    *(read_case(m, n, k, group=64, zeros=True, dtype="float16") for n, k in WEIGHTS for m in (1, 16)),
    *(read_case(m, n, k, zeros=True) for n, k in WEIGHTS[:2] for m in (1, 16)),
]
FEW_INT8 = [read_case(m, n, k, bits=8, dtype=dtype) for n, k in WEIGHTS for m in (1, 16) for dtype in ("bfloat16",)]


@pytest.mark.perf_target(against="dequantised", at_least=1.0)
@pytest.mark.parametrize("problem", [*FEW, *FEW_INT8])
def test_few_rows(problem: WeightOnlyGemm, perf: Perf, ops: ModuleType) -> None:
    perf(problem, ops.weight_only_gemm)


def layers(rows: tuple[int, ...]) -> Any:
    named = [pytest.param(m, n, k, id=f"{m}x{n}x{k}") for n, k in LAYERS for m in rows]
    return pytest.mark.parametrize(("m", "n", "k"), named)


def wide(problem: WeightOnlyGemm, ops: ModuleType, perf: Perf) -> None:
    """Against our own 16-bit product of the weights, as a linear layer stores them."""

    def arguments(generator: Any) -> tuple[Any, ...]:
        inputs = problem.inputs(generator)
        weights = problem.values(inputs, inputs.args[0].dtype).T.contiguous()
        return *inputs.args, weights

    def in_few_bits(*args: Any) -> Any:
        return ops.weight_only_gemm(*args[:-1])

    def in_16_bits(*args: Any) -> Any:
        return ops.gemm(args[0], args[-1].T)

    def right(*args: Any) -> Any:
        return problem.reference(Inputs(args[:-1]))

    perf(in_few_bits, args=arguments, against=in_16_bits, reference=right, flops=problem.flops, bytes=problem.bytes)


@pytest.mark.perf_target(at_least=0.95)
@pytest.mark.parametrize("bits", [4, 8])
@layers((256, 512))
def test_against_16_bits(m: int, n: int, k: int, bits: int, perf: Perf, ops: ModuleType) -> None:
    wide(WeightOnlyGemm(m, n, k, bits=bits), ops, perf)


@pytest.mark.perf_target(at_least=1.0)
@layers((1, 16))
def test_few_rows_against_16_bits(m: int, n: int, k: int, perf: Perf, ops: ModuleType) -> None:
    wide(WeightOnlyGemm(m, n, k), ops, perf)


@pytest.mark.perf_target(at_least=1 / 1.15)
@pytest.mark.parametrize("zeros", [False, True], ids=["symmetric", "zeros"])
@layers((64,))
def test_64_rows_against_one(m: int, n: int, k: int, zeros: bool, perf: Perf, ops: ModuleType) -> None:
    """The rival computes the first row alone; both sides return that row."""
    problem = WeightOnlyGemm(m, n, k, zeros=zeros)

    def all_rows(x: Any, *weights: Any) -> Any:
        return ops.weight_only_gemm(x, *weights)[:1]

    def one_row(x: Any, *weights: Any) -> Any:
        return ops.weight_only_gemm(x[:1], *weights)

    def right(*args: Any) -> Any:
        return problem.reference(Inputs((args[0][:1], *args[1:])))

    def arguments(generator: Any) -> tuple[Any, ...]:
        return problem.inputs(generator).args

    perf(all_rows, args=arguments, against=one_row, reference=right, flops=problem.flops, bytes=problem.bytes)


def for_torch(problem: WeightOnlyGemm, packed: Any, scales: Any, device: Any) -> tuple[Any, ...]:
    """The same weights in the packing of torch's kernels, exactly."""
    import torch

    numbers = unpacked_tiles(packed, problem.n)
    if problem.bits == 8:
        return numbers.T.contiguous(), scales
    rows = numbers.T.contiguous()
    bytes_ = rows[:, 0::2] << 4 | rows[:, 1::2]
    # Its weights are (number - 8) * scale + offset.
    pairs = torch.stack([scales, torch.zeros_like(scales)], -1).contiguous()
    return torch._convert_weight_to_int4pack(bytes_.contiguous(), 8), pairs


@pytest.mark.perf_target(at_least=1.0)
@pytest.mark.parametrize("bits", [4, 8])
@layers((1, 16, 64))
def test_against_torch(m: int, n: int, k: int, bits: int, perf: Perf, ops: ModuleType) -> None:
    """Symmetric, so that its offsets are zeros, which bfloat16 holds exactly."""
    import torch

    problem = WeightOnlyGemm(m, n, k, bits=bits)

    def arguments(generator: Any) -> tuple[Any, ...]:
        x, packed, scales = problem.inputs(generator).args
        return x, packed, scales, *for_torch(problem, packed, scales, x.device)

    def ours(x: Any, packed: Any, scales: Any, *_: Any) -> Any:
        return ops.weight_only_gemm(x, packed, scales)

    def torchs(x: Any, packed: Any, scales: Any, weight: Any, theirs: Any) -> Any:
        if bits == 8:
            return torch._weight_int8pack_mm(x, weight, theirs)
        return torch._weight_int4pack_mm(x, weight, problem.group, theirs)

    def right(*args: Any) -> Any:
        return problem.reference(Inputs(args[:3]))

    perf(ours, args=arguments, against=torchs, reference=right, flops=problem.flops, bytes=problem.bytes)
