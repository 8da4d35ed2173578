"""Products of 8-bit floating-point operands with scales, and the quantisers that make such operands."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from . import fakes_fp8 as fakes_fp8  # registers the fake kernels
from .errors import translated
from .ops import _refuse_gradients

_fp8_gemm = torch.ops.cuda_llm_ops.fp8_gemm.default
_fp8_grouped_gemm = torch.ops.cuda_llm_ops.fp8_grouped_gemm.default
_quantize_fp8 = torch.ops.cuda_llm_ops.quantize_fp8.default
_rms_norm_fp8 = torch.ops.cuda_llm_ops.rms_norm_fp8.default
_swiglu_fp8 = torch.ops.cuda_llm_ops.swiglu_fp8.default

Scales = Literal["tensor", "row", "1x128", "128x128"]
_SCALES = {"tensor": 0, "row": 1, "1x128": 2, "128x128": 3}
_FUSED_SCALES = {"row": 1, "1x128": 2}


def fp8_gemm(
    a: Tensor,
    b: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    *,
    bias: Tensor | None = None,
    out_dtype: torch.dtype = torch.bfloat16,
    fast_sums: bool = False,
) -> Tensor:
    """(scale_a a) (scale_b b)ᵀ + bias of 8-bit operands, summed in float32.

    Tensor cores sum 8-bit products in fewer bits than float32 has: on Hopper, what lies 13 bits below the first bit of
    the largest term, or of the sum so far, is cut off. Such sums are added to float32 sums at least every 128 of k. So
    the error does not grow with k: sums of equal numbers are at most 0.2 % too small.

    Args:
        a: (m, k), float8_e4m3fn or float8_e5m2. K-major, which means stride 1 along k; rows any stride apart.
        b: (n, k), float8_e4m3fn, as a linear layer's weight is stored. K-major too: a view (k, n) is not taken.
        scale_a: float32, any strides: () for one scale, (m,) for one of each row, or (m, k / 128) for one of each 128
            neighbours in a row. k / 128 is rounded up. The value of an element is its scale times its number.
        scale_b: float32: () or (n,), with a scale_a of () or (m,); or (n / 128, k / 128) for one of each 128 x 128
            elements, with a scale_a of (m, k / 128).
        bias: (n,), of out_dtype.
        out_dtype: bfloat16, float16 or float32.
        fast_sums: allow sums as exact as those of a product in bfloat16. The kernels of today are more exact in any
            case: docs/ladder-fp8.md says why sums over 256 of k were given up.

    Sizes need no alignment. On a Hopper GPU an operand whose rows begin at no multiple of 16 bytes is copied first.
    torch.autocast changes nothing: neither numbers, scales nor bias are cast.

    Returns:
        (m, n), contiguous, of out_dtype.

    Raises:
        TypeError: an argument is no tensor, or of a dtype that is not supported.
        ValueError: rank, layout, sizes, scales or devices do not fit, or an offset passes 2**31 elements.
        NotImplementedError: an input requires grad, a tensor is not strided, or its device has no kernel in this build.
        torch.OutOfMemoryError: the output or the workspace cannot be allocated.
    """
    try:
        _refuse_gradients("fp8_gemm", a=a, b=b, scale_a=scale_a, scale_b=scale_b, bias=bias)
        _require_dtype("fp8_gemm", "out_dtype", out_dtype)
        return _fp8_gemm(a, b, scale_a, scale_b, bias=bias, out_dtype=out_dtype, fast_sums=fast_sums)
    except (RuntimeError, AttributeError) as error:
        tensors = {"a": a, "b": b, "scale_a": scale_a, "scale_b": scale_b, "bias": bias}
        raise translated("fp8_gemm", error, tensors, {"fast_sums": ("bool", fast_sums)}) from None


def fp8_grouped_gemm(
    a: Tensor,
    b: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    groups: Tensor,
    *,
    out_dtype: torch.dtype = torch.bfloat16,
    fast_sums: bool = False,
) -> Tensor:
    """One product for each group of rows with a weight of its own, as a mixture of experts computes them.

    Nothing depends on the sizes on the host, so that a captured CUDA graph serves while they change.

    Args:
        a: (rows, k) with the rows of each group behind those of the one before it; or (groups, capacity, k), of which
            the first rows of each group count. Dtypes and layouts are those of `fp8_gemm`.
        b: (groups, n, k).
        scale_a: float32: (), a's shape without k, or that shape with k / 128 behind it.
        scale_b: float32: (), (groups,) or (groups, n) with the first two of scale_a; (groups, n / 128, k / 128) with
            the last.
        groups: (groups,), int32, on a's device. Of a (rows, k): where each group ends, as `offs` of
            torch.nn.functional.scaled_grouped_mm. Of a (groups, capacity, k): how many rows of each group count.
        out_dtype: bfloat16, float16 or float32.
        fast_sums: as of `fp8_gemm`.

    On a GPU the sizes are not checked, since the host would have to wait for them: one beyond the rows is taken as the
    nearest possible.

    Returns:
        (rows, n) or (groups, capacity, n), contiguous, of out_dtype. Rows that belong to no group are zeros.

    Raises:
        As `fp8_gemm`; on the CPU also a ValueError for sizes out of range.
    """
    try:
        _refuse_gradients("fp8_grouped_gemm", a=a, b=b, scale_a=scale_a, scale_b=scale_b)
        _require_dtype("fp8_grouped_gemm", "out_dtype", out_dtype)
        return _fp8_grouped_gemm(a, b, scale_a, scale_b, groups, out_dtype=out_dtype, fast_sums=fast_sums)
    except (RuntimeError, AttributeError) as error:
        tensors = {"a": a, "b": b, "scale_a": scale_a, "scale_b": scale_b, "groups": groups}
        raise translated("fp8_grouped_gemm", error, tensors, {"fast_sums": ("bool", fast_sums)}) from None


def quantize_fp8(
    x: Tensor, scales: Scales = "row", *, dtype: torch.dtype = torch.float8_e4m3fn
) -> tuple[Tensor, Tensor]:
    """(numbers, scales) of x: each scale brings the largest value that shares it to the largest number of `dtype`.

    Args:
        x: (rows, columns) or (batch, rows, columns), float32, float16 or bfloat16; any strides.
        scales: the values that share a scale: "tensor", "row", "1x128" (neighbours in a row) or "128x128".
        dtype: float8_e4m3fn or float8_e5m2.

    Returns:
        The numbers, contiguous, of x's shape, rounded to nearest; and float32 scales as `fp8_gemm` takes them. A scale
        is 0 where all its values are 0, and NaN where one of them is.

    Raises:
        TypeError: an argument is no tensor, or of a dtype that is not supported.
        ValueError: x has no 2 or 3 dimensions, or scales is none of the four.
        NotImplementedError: x requires grad, is not strided, or its device has no kernel in this build.
    """
    try:
        _refuse_gradients("quantize_fp8", x=x)
        _require_dtype("quantize_fp8", "dtype", dtype)
        return _quantize_fp8(x, _kind("quantize_fp8", scales, _SCALES), dtype)
    except (RuntimeError, AttributeError) as error:
        raise translated("quantize_fp8", error, {"x": x}, {}) from None


def rms_norm_fp8(
    x: Tensor,
    weight: Tensor,
    epsilon: float = 1e-6,
    scales: Scales = "row",
    *,
    dtype: torch.dtype = torch.float8_e4m3fn,
) -> tuple[Tensor, Tensor]:
    """(numbers, scales) of x / sqrt(mean(x²) + epsilon) · weight, normed and quantised in one pass over x.

    The normed values stay in float32 until they are quantised. `weight` is (columns,), of x's dtype; `scales` is "row"
    or "1x128". Else as `quantize_fp8`.
    """
    try:
        _refuse_gradients("rms_norm_fp8", x=x, weight=weight)
        _require_dtype("rms_norm_fp8", "dtype", dtype)
        return _rms_norm_fp8(x, weight, epsilon, _kind("rms_norm_fp8", scales, _FUSED_SCALES), dtype)
    except (RuntimeError, AttributeError) as error:
        raise translated("rms_norm_fp8", error, {"x": x, "weight": weight}, {"epsilon": ("number", epsilon)}) from None


def swiglu_fp8(
    gate: Tensor, up: Tensor, scales: Scales = "row", *, dtype: torch.dtype = torch.float8_e4m3fn
) -> tuple[Tensor, Tensor]:
    """(numbers, scales) of gate · sigmoid(gate) · up, computed and quantised in one pass.

    The two may be halves of one tensor: rows any stride apart, dense along columns. `scales` is "row" or "1x128". Else
    as `quantize_fp8`.
    """
    try:
        _refuse_gradients("swiglu_fp8", gate=gate, up=up)
        _require_dtype("swiglu_fp8", "dtype", dtype)
        return _swiglu_fp8(gate, up, _kind("swiglu_fp8", scales, _FUSED_SCALES), dtype)
    except (RuntimeError, AttributeError) as error:
        raise translated("swiglu_fp8", error, {"gate": gate, "up": up}, {}) from None


def _kind(op: str, scales: Any, allowed: dict[str, int]) -> int:
    if not isinstance(scales, str) or scales not in allowed:
        raise ValueError(f"{op}: scales is {scales!r}; it must be one of {', '.join(map(repr, allowed))}")
    return allowed[scales]


def _require_dtype(op: str, name: str, value: Any) -> None:
    if not isinstance(value, torch.dtype):
        raise TypeError(f"{op}: {name} is of type {type(value).__name__}; it must be a torch.dtype")
