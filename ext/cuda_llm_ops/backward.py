"""Gradients of attention: the operators that calls with gradients take, their backward, and the fake kernels.

A call without gradients never comes here, so that it costs the host nothing: the operators here are of their own, and
return the logarithms that the backward needs beside the output.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .autocast import DEVICES, _rule
from .fakes import _attention
from .fakes_options import _varlen

_MASK = "bool is_causal=False, float? scale=None, bool bottom_right=False, int window_left=-1, int window_right=-1"
_TENSORS = "Tensor q, Tensor k, Tensor v"
_OFFSETS = "Tensor cu_seqlens_q, Tensor cu_seqlens_k, int max_seqlen_q, int max_seqlen_k"
_SCHEMAS = {
    "flash_attention": f"({_TENSORS}, {_MASK}) -> (Tensor, Tensor)",
    "flash_attention_varlen": f"({_TENSORS}, {_OFFSETS}, {_MASK}) -> (Tensor, Tensor)",
    "naive_attention": f"({_TENSORS}, bool is_causal=False, float? scale=None) -> Tensor",
    "tiled_attention": f"({_TENSORS}, bool is_causal=False, float? scale=None) -> Tensor",
}

_library = torch.library.Library("cuda_llm_ops", "FRAGMENT")  # kept: its registrations end with it
_general = torch.ops.cuda_llm_ops.flash_attention_general.default
_varlen_forward = torch.ops.cuda_llm_ops.flash_attention_varlen.default
_backward = torch.ops.cuda_llm_ops.flash_attention_backward.default
_varlen_backward = torch.ops.cuda_llm_ops.flash_attention_varlen_backward.default
_AUTOCAST = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU) | torch._C.DispatchKeySet(
    torch._C.DispatchKey.AutocastCUDA
)


def _flash(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    is_causal: bool = False,
    scale: float | None = None,
    bottom_right: bool = False,
    window_left: int = -1,
    window_right: int = -1,
) -> Any:
    return _general(q, k, v, is_causal, scale, bottom_right, window_left, window_right, True)


def _flash_varlen(
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
) -> Any:
    offsets = cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k
    return _varlen_forward(q, k, v, *offsets, is_causal, scale, bottom_right, window_left, window_right, True)


def _fake(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    is_causal: bool = False,
    scale: float | None = None,
    bottom_right: bool = False,
    window_left: int = -1,
    window_right: int = -1,
) -> tuple[Tensor, Tensor]:
    return _attention("flash_attention", q, k, v), q.new_empty(q.shape[:3], dtype=torch.float32)


def _fake_varlen(
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
) -> tuple[Tensor, Tensor]:
    return _varlen(q, k, v, cu_seqlens_q, cu_seqlens_k, True)


def _fake_gradients(d_out: Tensor, q: Tensor, k: Tensor, v: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)


@torch.library.register_fake("cuda_llm_ops::flash_attention_backward", lib=_library)
def _(
    d_out: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    is_causal: bool = False,
    scale: float | None = None,
    deterministic: bool = False,
    bottom_right: bool = False,
    window_left: int = -1,
    window_right: int = -1,
    d_lse: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    return _fake_gradients(d_out, q, k, v)


@torch.library.register_fake("cuda_llm_ops::flash_attention_varlen_backward", lib=_library)
def _(
    d_out: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    is_causal: bool = False,
    scale: float | None = None,
    deterministic: bool = False,
    bottom_right: bool = False,
    window_left: int = -1,
    window_right: int = -1,
    d_lse: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    return _fake_gradients(d_out, q, k, v)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    q, k, v, ctx.is_causal, ctx.scale, *ctx.mask = inputs
    ctx.save_for_backward(q, k, v, *output)
    ctx.set_materialize_grads(False)


def _differentiate(ctx: Any, d_out: Tensor | None, d_lse: Tensor | None) -> tuple[Any, ...]:
    if d_out is None and d_lse is None:
        return (None,) * 8
    q, k, v, out, lse = ctx.saved_tensors
    if d_out is None:
        d_out = torch.zeros_like(out)
    deterministic = torch.are_deterministic_algorithms_enabled()
    gradients = _backward(d_out, q, k, v, out, lse, ctx.is_causal, ctx.scale, deterministic, *ctx.mask, d_lse)
    return *gradients, None, None, None, None, None


def _save_varlen(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    q, k, v, cu_seqlens_q, cu_seqlens_k, *ctx.longest, ctx.is_causal, ctx.scale, bottom_right, left, right = inputs
    ctx.mask = bottom_right, left, right
    ctx.save_for_backward(q, k, v, *output, cu_seqlens_q, cu_seqlens_k)
    ctx.set_materialize_grads(False)


def _differentiate_varlen(ctx: Any, d_out: Tensor | None, d_lse: Tensor | None) -> tuple[Any, ...]:
    if d_out is None and d_lse is None:
        return (None,) * 12
    q, k, v, out, lse, *offsets = ctx.saved_tensors
    if d_out is None:
        d_out = torch.zeros_like(out)
    options = ctx.is_causal, ctx.scale, torch.are_deterministic_algorithms_enabled(), *ctx.mask
    gradients = _varlen_backward(d_out, q, k, v, out, lse, *offsets, *ctx.longest, *options, d_lse)
    return *gradients, *(None,) * 9


def _save_plain(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    q, k, v, ctx.is_causal, ctx.scale = inputs
    ctx.save_for_backward(q, k, v, output)
    ctx.set_materialize_grads(False)


def _differentiate_plain(ctx: Any, d_out: Tensor | None) -> tuple[Any, ...]:
    """Of operators that return no logarithms: the portable backward needs none, for a GPU they are computed here."""
    if d_out is None:
        return None, None, None, None, None
    q, k, v, out = ctx.saved_tensors
    if q.device.type == "cpu":
        lse = out.new_empty(out.shape[:3], dtype=torch.float32)
    else:
        # A backward inside a torch.autocast block has the forward's dtypes, not the block's.
        with torch._C._ExcludeDispatchKeyGuard(_AUTOCAST):
            lse = _flash(q, k, v, ctx.is_causal, ctx.scale)[1]
    deterministic = torch.are_deterministic_algorithms_enabled()
    return *_backward(d_out, q, k, v, out, lse, ctx.is_causal, ctx.scale, deterministic), None, None


def _refuse_double_backward(ctx: Any, *_: Any) -> tuple[Any, ...]:
    raise NotImplementedError(
        "flash_attention_backward: there are no second derivatives; call backward without create_graph"
    )


def _define(name: str, forward: Any, fake: Any, save: Any, differentiate: Any) -> Any:
    training = f"{name}_training"
    _library.define(f"{training}{_SCHEMAS[name]}")
    for key in ("CPU", "CUDA"):
        _library.impl(training, forward, key)
    for device, autocast in DEVICES.items():
        _library.impl(training, _rule(training, device), autocast.name)
    torch.library.register_fake(f"cuda_llm_ops::{training}", fake, lib=_library)
    torch.library.register_autograd(f"cuda_llm_ops::{training}", differentiate, setup_context=save, lib=_library)
    return getattr(torch.ops.cuda_llm_ops, training).default


def _define_plain(name: str) -> Any:
    def fake(q: Tensor, k: Tensor, v: Tensor, is_causal: bool = False, scale: float | None = None) -> Tensor:
        return _attention(name, q, k, v)

    return _define(name, getattr(torch.ops.cuda_llm_ops, name).default, fake, _save_plain, _differentiate_plain)


for _of in ("flash_attention_backward", "flash_attention_varlen_backward"):
    torch.library.register_autograd(f"cuda_llm_ops::{_of}", _refuse_double_backward, lib=_library)
flash_attention_training = _define("flash_attention", _flash, _fake, _save, _differentiate)
flash_attention_varlen_training = _define(
    "flash_attention_varlen", _flash_varlen, _fake_varlen, _save_varlen, _differentiate_varlen
)
naive_attention_training, tiled_attention_training = map(_define_plain, ("naive_attention", "tiled_attention"))
