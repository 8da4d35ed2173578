"""Fake kernels of the FP8 operators; see fakes.py."""

from __future__ import annotations

import torch
from torch import Tensor

from .fakes import _require

_FP8 = (torch.float8_e4m3fn, torch.float8_e5m2)
_OUT = (torch.bfloat16, torch.float16, torch.float32)
_BLOCK = 128


def _blocks(size: int) -> int:
    return (size + _BLOCK - 1) // _BLOCK


def _check(op: str, a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, out_dtype: torch.dtype) -> None:
    _require(a.dtype in _FP8, TypeError, f"{op}: a is {a.dtype}; it must be one of {_FP8}")
    _require(b.dtype == _FP8[0], TypeError, f"{op}: b is {b.dtype}; it must be {_FP8[0]}")
    _require(out_dtype in _OUT, TypeError, f"{op}: out_dtype is {out_dtype}; it must be one of {_OUT}")
    for name, tensor in (("b", b), ("scale_a", scale_a), ("scale_b", scale_b)):
        _require(tensor.device == a.device, ValueError, f"{op}: {name} is on {tensor.device}, a on {a.device}")
    for name, scale in (("scale_a", scale_a), ("scale_b", scale_b)):
        _require(scale.dtype == torch.float32, TypeError, f"{op}: {name} is {scale.dtype}; it must be torch.float32")
    _require(a.shape[-1] == b.shape[-1], ValueError, f"{op}: inner sizes of a {a.shape} and b {b.shape} differ")


@torch.library.register_fake("cuda_llm_ops::fp8_gemm")
def _(
    a: Tensor,
    b: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    *,
    bias: Tensor | None = None,
    out_dtype: torch.dtype,
    fast_sums: bool = False,
) -> Tensor:
    _require(a.dim() == 2, ValueError, f"fp8_gemm: a has {a.dim()} dimensions; it must have 2")
    _require(b.dim() == 2, ValueError, f"fp8_gemm: b has {b.dim()} dimensions; it must have 2")
    _check("fp8_gemm", a, b, scale_a, scale_b, out_dtype)
    if bias is not None:
        _require(bias.shape == b.shape[:1], ValueError, f"fp8_gemm: bias {bias.shape} against b {b.shape}")
        _require(bias.dtype == out_dtype, TypeError, f"fp8_gemm: bias is {bias.dtype}; it must be {out_dtype}")
    return a.new_empty((a.shape[0], b.shape[0]), dtype=out_dtype)


@torch.library.register_fake("cuda_llm_ops::fp8_grouped_gemm")
def _(
    a: Tensor,
    b: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    groups: Tensor,
    *,
    out_dtype: torch.dtype,
    fast_sums: bool = False,
) -> Tensor:
    op = "fp8_grouped_gemm"
    _require(a.dim() in (2, 3), ValueError, f"{op}: a has {a.dim()} dimensions; it must have 2 or 3")
    _require(b.dim() == 3, ValueError, f"{op}: b has {b.dim()} dimensions; it must have 3")
    _check(op, a, b, scale_a, scale_b, out_dtype)
    _require(groups.shape == b.shape[:1], ValueError, f"{op}: groups {groups.shape} against b {b.shape}")
    _require(groups.dtype == torch.int32, TypeError, f"{op}: groups is {groups.dtype}; it must be torch.int32")
    if a.dim() == 3:
        _require(a.shape[0] == b.shape[0], ValueError, f"{op}: groups of a {a.shape} and b {b.shape} differ")
    return a.new_empty((*a.shape[:-1], b.shape[1]), dtype=out_dtype)


def _quantised(x: Tensor, scales: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    _require(x.dim() in (2, 3), ValueError, f"x has {x.dim()} dimensions; it must have 2 or 3")
    _require(dtype in _FP8, TypeError, f"dtype is {dtype}; it must be one of {_FP8}")
    *lead, rows, columns = x.shape
    shape = ([], [*lead, rows], [*lead, rows, _blocks(columns)], [*lead, _blocks(rows), _blocks(columns)])[scales]
    return x.new_empty(x.shape, dtype=dtype), x.new_empty(shape, dtype=torch.float32)


@torch.library.register_fake("cuda_llm_ops::quantize_fp8")
def _(x: Tensor, scales: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    return _quantised(x, scales, dtype)


@torch.library.register_fake("cuda_llm_ops::rms_norm_fp8")
def _(x: Tensor, weight: Tensor, epsilon: float, scales: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    _require(weight.shape == x.shape[-1:], ValueError, f"rms_norm_fp8: weight {weight.shape} against x {x.shape}")
    return _quantised(x, scales, dtype)


@torch.library.register_fake("cuda_llm_ops::swiglu_fp8")
def _(gate: Tensor, up: Tensor, scales: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    _require(up.shape == gate.shape, ValueError, f"swiglu_fp8: up {up.shape} against gate {gate.shape}")
    return _quantised(gate, scales, dtype)
