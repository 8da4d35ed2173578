"""Fake kernels of flash_attention with options and of packed sequences; see fakes.py."""

from __future__ import annotations

import torch
from torch import Tensor

from .fakes import _DTYPES, _attention, _check_pair, _check_values, _require


@torch.library.register_fake("cuda_llm_ops::flash_attention_general")
def _(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    is_causal: bool = False,
    scale: float | None = None,
    bottom_right: bool = False,
    window_left: int = -1,
    window_right: int = -1,
    return_lse: bool = False,
) -> tuple[Tensor, Tensor]:
    out = _attention("flash_attention", q, k, v)
    return out, q.new_empty(q.shape[:3] if return_lse else (0,), dtype=torch.float32)


def _varlen(
    q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor, return_lse: bool
) -> tuple[Tensor, Tensor]:
    op = "flash_attention_varlen"
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        _require(tensor.dim() == 3, ValueError, f"{op}: {name} has {tensor.dim()} dimensions; it must have 3")
        _check_pair(op, name, tensor, "q", q)
    _require(q.dtype in _DTYPES, TypeError, f"{op}: q is {q.dtype}; it must be one of {_DTYPES}")
    _require(q.shape[2] <= 256, NotImplementedError, f"{op}: q has head_dim {q.shape[2]}; it must be at most 256")
    _require(k.shape[2] == q.shape[2], ValueError, f"{op}: k {k.shape} against q {q.shape}")
    _check_values(op, q, k, v)
    divisible = q.shape[1] == 0 if k.shape[1] == 0 else q.shape[1] % k.shape[1] == 0
    _require(divisible, ValueError, f"{op}: heads of q {q.shape} are no multiple of those of k {k.shape}")
    for name, offsets in (("cu_seqlens_q", cu_seqlens_q), ("cu_seqlens_k", cu_seqlens_k)):
        _require(offsets.dim() == 1, ValueError, f"{op}: {name} has {offsets.dim()} dimensions; it must have 1")
        _require(offsets.dtype == torch.int32, TypeError, f"{op}: {name} is {offsets.dtype}; it must be torch.int32")
        _require(offsets.device == q.device, ValueError, f"{op}: {name} on {offsets.device}, q on {q.device}")
    _require(
        cu_seqlens_q.shape == cu_seqlens_k.shape,
        ValueError,
        f"{op}: cu_seqlens_k {cu_seqlens_k.shape} against cu_seqlens_q {cu_seqlens_q.shape}; they must be as many",
    )
    lse = (q.shape[1], q.shape[0]) if return_lse else (0,)
    return q.new_empty((*q.shape[:2], v.shape[2])), q.new_empty(lse, dtype=torch.float32)


@torch.library.register_fake("cuda_llm_ops::flash_attention_varlen")
def _(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    is_causal: bool = False,
    scale: float | None = None,
    bottom_right: bool = False,
    window_left: int = -1,
    window_right: int = -1,
    return_lse: bool = False,
) -> tuple[Tensor, Tensor]:
    return _varlen(q, k, v, cu_seqlens_q, cu_seqlens_k, return_lse)
