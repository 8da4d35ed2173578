"""Fake kernel of the weight-only product; see fakes.py."""

from __future__ import annotations

import torch
from torch import Tensor

from .fakes import _require

_BITS = {512: 4, 1024: 8}


@torch.library.register_fake("cuda_llm_ops::weight_only_gemm")
def _(x: Tensor, packed: Tensor, scales: Tensor, zeros: Tensor | None = None) -> Tensor:
    op = "weight_only_gemm"
    _require(x.dim() == 2, ValueError, f"{op}: x has {x.dim()} dimensions; it must have 2")
    _require(packed.dim() == 3, ValueError, f"{op}: packed has {packed.dim()} dimensions; it must have 3")
    half = (torch.float16, torch.bfloat16)
    _require(x.dtype in half, TypeError, f"{op}: x is {x.dtype}; it must be one of {half}")
    _require(packed.dtype == torch.uint8, TypeError, f"{op}: packed is {packed.dtype}; it must be torch.uint8")
    _require(scales.dtype == x.dtype, TypeError, f"{op}: scales is {scales.dtype}; it must be {x.dtype}")
    bits = _BITS.get(int(packed.shape[2]))
    _require(bits is not None, ValueError, f"{op}: packed has shape {packed.shape}; its last size must be 512 or 1024")
    rank = 2 if bits == 4 else 1
    _require(scales.dim() == rank, ValueError, f"{op}: scales has {scales.dim()} dimensions; it must have {rank}")
    _require(x.shape[1] == packed.shape[1] * 64, ValueError, f"{op}: x {x.shape} against packed {packed.shape}")
    columns = packed.shape[0] * 16
    _require(
        columns - 16 < scales.shape[-1] <= columns, ValueError, f"{op}: scales {scales.shape}, packed {packed.shape}"
    )
    if zeros is not None:
        _require(bits == 4, ValueError, f"{op}: zeros is given with 8-bit weights; it must be None")
        _require(zeros.dtype == torch.uint8, TypeError, f"{op}: zeros is {zeros.dtype}; it must be torch.uint8")
        _require(zeros.shape == scales.shape, ValueError, f"{op}: zeros {zeros.shape} against scales {scales.shape}")
    for name, tensor in (("packed", packed), ("scales", scales), ("zeros", zeros)):
        if tensor is not None:
            _require(tensor.device == x.device, ValueError, f"{op}: {name} is on {tensor.device}, x on {x.device}")
    return x.new_empty((x.shape[0], scales.shape[-1]))
