"""Gradients of attention: the operators that calls with gradients take, their backward, and the fake kernels.

A call without gradients never comes here, so that it costs the host nothing: `flash_attention_training` is an operator
of its own, which returns the logarithms that the backward needs beside the output.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor

from .autocast import DEVICES, _rule
from .fakes import _attention

_NAME = "flash_attention_training"
_HEAD_DIMS = (64, 128)

_library = torch.library.Library("cuda_llm_ops", "FRAGMENT")  # kept: its registrations end with it
_library.define(f"{_NAME}(Tensor q, Tensor k, Tensor v, bool is_causal=False, float? scale=None) -> (Tensor, Tensor)")
_general = torch.ops.cuda_llm_ops.flash_attention_general.default
_backward = torch.ops.cuda_llm_ops.flash_attention_backward.default
_PORTABLE = ("naive_attention", "tiled_attention")  # with a backward on processors alone


@cache
def _capability(index: int) -> tuple[int, int]:
    return torch.cuda.get_device_capability(index)


def _refuse_without_kernel(q: Tensor) -> None:
    # Here and not in the backward: what cannot be differentiated is to fail where it is called.
    if q.device.type != "cuda" or q.numel() == 0:
        return
    major, minor = _capability(q.device.index)
    if (major, minor) != (9, 0):
        problem = f"q requires grad on a device of compute capability {major}.{minor}; the backward needs 9.0"
    elif q.dtype not in (torch.float16, torch.bfloat16):
        problem = f"q is {q.dtype} and requires grad; on a GPU the backward takes torch.float16 and torch.bfloat16"
    elif q.shape[3] not in _HEAD_DIMS:
        problem = f"q requires grad and has head_dim {q.shape[3]}; on a GPU the backward takes head_dim 64 and 128"
    else:
        return
    raise NotImplementedError(f"NotImplementedError: flash_attention: {problem}; call it under torch.no_grad()")


def _forward(q: Tensor, k: Tensor, v: Tensor, is_causal: bool = False, scale: float | None = None) -> Any:
    _refuse_without_kernel(q)
    return _general(q, k, v, is_causal, scale, False, -1, -1, True)


for _key in ("CPU", "CUDA"):
    _library.impl(_NAME, _forward, _key)
flash_attention_training = getattr(torch.ops.cuda_llm_ops, _NAME).default
for _device, _autocast in DEVICES.items():
    _library.impl(_NAME, _rule(_NAME, _device), _autocast.name)


@torch.library.register_fake(f"cuda_llm_ops::{_NAME}", lib=_library)
def _(q: Tensor, k: Tensor, v: Tensor, is_causal: bool = False, scale: float | None = None) -> tuple[Tensor, Tensor]:
    return _attention("flash_attention", q, k, v), q.new_empty(q.shape[:3], dtype=torch.float32)


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
) -> tuple[Tensor, Tensor, Tensor]:
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    q, k, v, ctx.is_causal, ctx.scale = inputs
    ctx.save_for_backward(q, k, v, *output)
    ctx.set_materialize_grads(False)


def _differentiate(ctx: Any, d_out: Tensor | None, d_lse: Tensor | None) -> tuple[Any, ...]:
    if d_lse is not None:
        raise NotImplementedError("flash_attention: the logarithms have no gradient; use their detach()")
    if d_out is None:
        return None, None, None, None, None
    deterministic = torch.are_deterministic_algorithms_enabled()
    q, k, v, out, lse = ctx.saved_tensors
    gradients = _backward(d_out, q, k, v, out, lse, ctx.is_causal, ctx.scale, deterministic)
    return *gradients, None, None


def _refuse_double_backward(ctx: Any, *_: Any) -> tuple[Any, ...]:
    raise NotImplementedError(
        "flash_attention_backward: there are no second derivatives; call backward without create_graph"
    )


def _differentiate_portable(ctx: Any, d_out: Tensor | None) -> tuple[Any, ...]:
    return _differentiate(ctx, d_out, None)


def _save_portable(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    # The portable backward computes the logarithms itself.
    _save(ctx, inputs, (output, output.new_empty(output.shape[:3], dtype=torch.float32)))


def _define_portable(name: str) -> Any:
    operator, training = getattr(torch.ops.cuda_llm_ops, name).default, f"{name}_training"

    def forward(q: Tensor, k: Tensor, v: Tensor, is_causal: bool = False, scale: float | None = None) -> Tensor:
        if q.device.type == "cuda" and q.numel() != 0:
            raise NotImplementedError(
                f"NotImplementedError: {name}: q is on {q.device}, and an input requires grad; the backward is for "
                "the CPU; call flash_attention, or call it under torch.no_grad()"
            )
        out: Tensor = operator(q, k, v, is_causal, scale)
        return out

    _library.define(f"{training}(Tensor q, Tensor k, Tensor v, bool is_causal=False, float? scale=None) -> Tensor")
    for key in ("CPU", "CUDA"):
        _library.impl(training, forward, key)
    for device, autocast in DEVICES.items():
        _library.impl(training, _rule(training, device), autocast.name)

    @torch.library.register_fake(f"cuda_llm_ops::{training}", lib=_library)
    def _(q: Tensor, k: Tensor, v: Tensor, is_causal: bool = False, scale: float | None = None) -> Tensor:
        return _attention(name, q, k, v)

    torch.library.register_autograd(
        f"cuda_llm_ops::{training}", _differentiate_portable, setup_context=_save_portable, lib=_library
    )
    return getattr(torch.ops.cuda_llm_ops, training).default


torch.library.register_autograd(f"cuda_llm_ops::{_NAME}", _differentiate, setup_context=_save, lib=_library)
torch.library.register_autograd("cuda_llm_ops::flash_attention_backward", _refuse_double_backward, lib=_library)

naive_attention_training, tiled_attention_training = (_define_portable(_name) for _name in _PORTABLE)
