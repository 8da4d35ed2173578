"""quantize_fp8, rms_norm_fp8 and swiglu_fp8 against torch and float64."""

from __future__ import annotations

import math
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the operators need torch")

import cuda_llm_ops  # noqa: E402
import fp8_cases as cases  # noqa: E402
from torch import Tensor  # noqa: E402

KINDS = ("tensor", "row", "1x128", "128x128")
FP8 = (torch.float8_e4m3fn, torch.float8_e5m2)
both = pytest.mark.parametrize("dtype", FP8, ids=["e4m3", "e5m2"])


def tops(x: Tensor, kind: str) -> Tensor:
    """The largest magnitudes of the values that share a scale, of a (batch, rows, columns) tensor."""
    size = x.abs()
    if kind == "tensor":
        return size.amax()
    if kind == "row":
        return size.amax(-1)
    padded = torch.nn.functional.pad(size, (0, -x.shape[-1] % 128))
    blocks = padded.unflatten(-1, (-1, 128)).amax(-1)
    if kind == "1x128":
        return blocks
    padded = torch.nn.functional.pad(blocks, (0, 0, 0, -x.shape[-2] % 128))
    return padded.unflatten(-2, (-1, 128)).amax(-2)


def spread(scale: Tensor, x: Tensor, kind: str) -> Tensor:
    """A scale for each element."""
    if kind == "row":
        return scale[..., None]
    if kind in ("1x128", "128x128"):
        scale = scale.repeat_interleave(128, -1)[..., : x.shape[-1]]
    return scale.repeat_interleave(128, -2)[..., : x.shape[-2], :] if kind == "128x128" else scale


def hard(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Rows of all magnitudes, zeros, an outlier."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(shape, generator=generator) * torch.randn((*shape[:-1], 1), generator=generator).mul(3).exp2()
    x[..., 0, :] = 0.0
    x[..., -1, -1] = 1000.0
    return x.to(dtype)


@both
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(5, 7), (2, 130, 300), (3, 512)])
@pytest.mark.parametrize("given", [torch.float32, torch.float16, torch.bfloat16])
def test_numbers_and_scales(
    device: str, shape: tuple[int, ...], given: torch.dtype, kind: str, dtype: torch.dtype
) -> None:
    """To the last bit: the quotient in float32, held within the range, rounded as torch rounds."""
    x = hard(shape, given).to(device)
    numbers, scale = cuda_llm_ops.quantize_fp8(x, kind, dtype=dtype)
    largest = torch.finfo(dtype).max
    x = x.cpu()  # torch divides by a number in two ways: on a card it multiplies by the rounded inverse
    right = tops(x.float(), kind) / largest
    assert torch.equal(scale.cpu(), right)
    quotient = (x.float() / spread(right, x, kind)).nan_to_num(0.0).clamp(-largest, largest)
    assert torch.equal(numbers.float().cpu(), quotient.to(dtype).float())


@pytest.mark.parametrize("kind", ["row", "1x128"])
@pytest.mark.parametrize("columns", [100, 512, 4096])
@pytest.mark.parametrize("given", [torch.float32, torch.float16, torch.bfloat16])
def test_fused_quantisers(device: str, columns: int, given: torch.dtype, kind: str) -> None:
    """Within the rounding of a number: 1/16 of it, or half the smallest number's step below the smallest."""
    x, other = hard((9, 2 * columns), given).to(device).chunk(2, -1)
    weight = other[3].contiguous()
    wide = x.double()
    normed = wide * (wide.square().mean(-1, keepdim=True) + 1e-5).rsqrt() * weight.double()
    gated = wide * wide.sigmoid() * other.double()
    calls: list[tuple[Tensor, tuple[Tensor, Tensor]]] = [
        (normed, cuda_llm_ops.rms_norm_fp8(x, weight, 1e-5, kind)),
        (gated, cuda_llm_ops.swiglu_fp8(x, other, kind)),
    ]
    for right, (numbers, scale) in calls:
        torch.testing.assert_close(scale.double(), tops(right, kind) / 448, rtol=1e-5, atol=1e-30)
        along = spread(scale.double(), x, kind)
        error = (numbers.double() * along - right).abs()
        assert (error <= right.abs() * (2**-4 + 1e-5) + along * (2**-10 + 1e-6)).all()


def test_nan_spoils_the_values_that_share_its_scale(device: str) -> None:
    x = torch.ones(3, 256, device=device)
    x[1, 200] = math.nan
    numbers, scale = cuda_llm_ops.quantize_fp8(x, "1x128")
    assert scale.isnan().nonzero().tolist() == [[1, 1]]
    assert numbers.float().isnan().sum() == 128
    assert cuda_llm_ops.quantize_fp8(x, "tensor")[1].isnan()


def test_what_is_quantised_multiplies(device: str) -> None:
    """The scales are those that fp8_gemm takes."""
    generator = torch.Generator().manual_seed(1)
    x, w = torch.randn(40, 520, generator=generator).to(device), torch.randn(140, 520, generator=generator).to(device)
    for of_x, of_w in (("tensor", "tensor"), ("row", "row"), ("1x128", "128x128")):
        a, scale_a = cuda_llm_ops.quantize_fp8(x, of_x)
        b, scale_b = cuda_llm_ops.quantize_fp8(w, of_w)
        out = cuda_llm_ops.fp8_gemm(a, b, scale_a, scale_b, out_dtype=torch.float32)
        left, right = cases.values(a, scale_a, 1), cases.values(b, scale_b, 128)
        cases.assert_right(out, cases.Case({}, left @ right.T, left.abs() @ right.abs().T))
        assert (out.cpu() - x.cpu() @ w.cpu().T).norm() < 0.07 * out.cpu().norm()


def test_edges_and_opcheck(device: str) -> None:
    for kind, shape in zip(KINDS, ((), (0,), (0, 2), (0, 2)), strict=True):
        numbers, scale = cuda_llm_ops.quantize_fp8(torch.zeros(0, 200, device=device), kind)
        assert numbers.shape == (0, 200)
        assert scale.shape == shape
    x = torch.randn(3, 200, device=device)
    for kind in range(4):
        torch.library.opcheck(torch.ops.cuda_llm_ops.quantize_fp8.default, (x, kind, FP8[0]))
    torch.library.opcheck(torch.ops.cuda_llm_ops.rms_norm_fp8.default, (x, x[0], 1e-6, 2, FP8[0]))
    torch.library.opcheck(torch.ops.cuda_llm_ops.swiglu_fp8.default, (x, x, 1, FP8[0]))


X = torch.ones(2, 8)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda ops: ops.quantize_fp8(X, "column"),
            ValueError,
            "scales is 'column'; it must be one of 'tensor', 'row'",
        ),
        (lambda ops: ops.quantize_fp8(X[0]), ValueError, "x has 1 dimensions"),
        (lambda ops: ops.quantize_fp8(X, dtype=torch.int8), TypeError, "dtype is int8; it must be float8_e4m3fn"),
        (lambda ops: ops.quantize_fp8(X.int()), TypeError, "x is int32; it must be float32"),
        (lambda ops: ops.rms_norm_fp8(X, X), ValueError, "weight has shape .* one weight for each column"),
        (lambda ops: ops.rms_norm_fp8(X, X[0].half()), TypeError, "weight is float16 but x is float32"),
        (lambda ops: ops.rms_norm_fp8(X, X[0], -1.0), ValueError, "epsilon is -1; it must be at least 0"),
        (
            lambda ops: ops.rms_norm_fp8(X, X[0], scales="tensor"),
            ValueError,
            "scales is 'tensor'; it must be one of 'row'",
        ),
        (lambda ops: ops.swiglu_fp8(X, X[:1]), ValueError, "up has shape .* but gate has"),
    ],
)
def test_what_is_refused(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call(cuda_llm_ops)
