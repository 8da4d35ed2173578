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
_PLAIN = f"({_TENSORS}, bool is_causal=False, float? scale=None) -> Tensor"

_library = torch.library.Library("cuda_llm_ops", "FRAGMENT")  # kept: its registrations end with it
_general = torch.ops.cuda_llm_ops.flash_attention_general.default
_varlen_forward = torch.ops.cuda_llm_ops.flash_attention_varlen.default
_backward = torch.ops.cuda_llm_ops.flash_attention_backward.default
_varlen_backward = torch.ops.cuda_llm_ops.flash_attention_varlen_backward.default
_AUTOCAST = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU) | torch._C.DispatchKeySet(
    torch._C.DispatchKey.AutocastCUDA
)


class _Attention(torch.autograd.Function):
    """Of an operator that returns the output and the logarithms, with its backward.

    rest: what says where packed sequences lie, if the operator takes them (two tensors and two lengths), and the mask.
    """

    @staticmethod
    def forward(ctx: Any, operators: tuple[Any, Any], q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> Any:
        forward, ctx.operator = operators
        out, lse = forward(q, k, v, *rest, True)
        *offsets, ctx.is_causal, ctx.scale, bottom_right, left, right = rest
        ctx.mask = bottom_right, left, right
        ctx.longest = offsets[2:]
        ctx.save_for_backward(q, k, v, out, lse, *offsets[:2])
        ctx.set_materialize_grads(False)
        return out, lse

    @staticmethod
    def backward(ctx: Any, d_out: Tensor | None, d_lse: Tensor | None) -> Any:
        of_others = (None,) * (len(ctx.needs_input_grad) - 4)
        if d_out is None and d_lse is None:
            return None, None, None, None, *of_others
        q, k, v, out, lse, *offsets = ctx.saved_tensors
        if d_out is None:
            d_out = torch.zeros_like(out)
        options = ctx.is_causal, ctx.scale, torch.are_deterministic_algorithms_enabled(), *ctx.mask, d_lse
        return None, *_gradients(ctx.operator, d_out, q, k, v, out, lse, *offsets, *ctx.longest, *options), *of_others


class _Plain(torch.autograd.Function):
    """Of an operator that returns no logarithms: the portable backward needs none, for a GPU they are computed then."""

    @staticmethod
    def forward(ctx: Any, operators: tuple[Any], q: Tensor, k: Tensor, v: Tensor, *options: Any) -> Tensor:
        out: Tensor = operators[0](q, k, v, *options)
        ctx.options = options
        ctx.save_for_backward(q, k, v, out)
        ctx.set_materialize_grads(False)
        return out

    @staticmethod
    def backward(ctx: Any, d_out: Tensor | None) -> Any:
        if d_out is None:
            return (None,) * 6
        q, k, v, out = ctx.saved_tensors
        if q.device.type == "cpu":
            lse = out.new_empty(out.shape[:3], dtype=torch.float32)
        else:
            # A backward inside a torch.autocast block has the forward's dtypes, not the block's.
            with torch._C._ExcludeDispatchKeyGuard(_AUTOCAST):
                lse = _general(q, k, v, *ctx.options, False, -1, -1, True)[1]
        deterministic = torch.are_deterministic_algorithms_enabled()
        return None, *_gradients(_backward, d_out, q, k, v, out, lse, *ctx.options, deterministic), None, None


def _gradients(operator: Any, *arguments: Any) -> Any:
    """Those of q, k and v. Unless they are to be differentiated, autograd's part of the dispatch is left out."""
    if torch.is_grad_enabled():
        return operator(*arguments)
    with torch._C._AutoDispatchBelowAutograd():
        return operator(*arguments)


def _fake_pair(q: Tensor, k: Tensor, v: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return _attention("flash_attention", q, k, v), q.new_empty(q.shape[:3], dtype=torch.float32)


def _fake_varlen(q: Tensor, k: Tensor, v: Tensor, starts_q: Tensor, starts_k: Tensor, *_: Any) -> Any:
    return _varlen(q, k, v, starts_q, starts_k, True)


def _fake_gradients(d_out: Tensor, q: Tensor, k: Tensor, v: Tensor, *_: Any, **__: Any) -> tuple[Tensor, ...]:
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)


def _refuse_double_backward(ctx: Any, *_: Any) -> tuple[Any, ...]:
    raise NotImplementedError(
        "flash_attention_backward: there are no second derivatives; call backward without create_graph"
    )


def _define(name: str, schema: str, function: type[torch.autograd.Function], fake: Any, *operators: Any) -> Any:
    """The operator NAME_training: `function` of `operators`, the first of which is the forward."""
    training = f"{name}_training"
    _library.define(training + schema)
    found = getattr(torch.ops.cuda_llm_ops, training).default
    # The dispatcher leaves out what a caller left to its default.
    defaults = [argument.default_value for argument in found._schema.arguments]
    last = (True,) if function is _Attention else ()  # the logarithms, too

    def below_autograd(*given: Any) -> Any:
        return operators[0](*given, *defaults[len(given) :], *last)

    def differentiable(*given: Any) -> Any:
        return function.apply(operators, *given, *defaults[len(given) :])

    for key in ("CPU", "CUDA"):
        _library.impl(training, below_autograd, key)
    for device, autocast in DEVICES.items():
        _library.impl(training, _rule(training, device), autocast.name)
    # torch.library.register_autograd would cost the host 15 us more a call: it dispatches a second time.
    _library.impl(training, differentiable, "Autograd")
    torch.library.register_fake(f"cuda_llm_ops::{training}", fake, lib=_library)
    return found


def _define_plain(name: str) -> Any:
    operator = getattr(torch.ops.cuda_llm_ops, name).default
    return _define(name, _PLAIN, _Plain, lambda q, k, v, *_: _attention(name, q, k, v), operator)


for _of in (_backward, _varlen_backward):
    torch.library.register_fake(_of._name, _fake_gradients, lib=_library)
    torch.library.register_autograd(_of._name, _refuse_double_backward, lib=_library)
flash_attention_training = _define(
    "flash_attention", f"({_TENSORS}, {_MASK}) -> (Tensor, Tensor)", _Attention, _fake_pair, _general, _backward
)
flash_attention_varlen_training = _define(
    "flash_attention_varlen",
    f"({_TENSORS}, {_OFFSETS}, {_MASK}) -> (Tensor, Tensor)",
    _Attention,
    _fake_varlen,
    _varlen_forward,
    _varlen_backward,
)
naive_attention_training, tiled_attention_training = map(_define_plain, ("naive_attention", "tiled_attention"))
