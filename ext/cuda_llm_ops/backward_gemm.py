"""Gradients of `gemm` and `tensor_core_gemm`: the operators that calls with gradients take, and their backward.

A call without gradients never comes here, so that it costs the host nothing. The backward is products by the same
operators. They read operands through transposition flags and views, never through copies. Where an operand is shared by
a batch, its gradient is a sum over the batch. If strides allow, batch and summed dimension are one, and so the sum is
part of the product. If not, there is one product for each member of the batch, in float32, and they are added up
after, at most 256 MiB at a time.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .autocast import DEVICES, _rule
from .fakes import _fake_gemm, _fake_tensor_core_gemm

_SCHEMAS = {
    "gemm": "(Tensor a, Tensor b, float alpha=1.0, float beta=0.0, Tensor? c=None, bool trans_a=False, "
    "bool trans_b=False) -> Tensor",
    "tensor_core_gemm": "(Tensor a, Tensor b) -> Tensor",
}
_GRADIENT = "gemm_gradient"
_PARTIAL_ELEMENTS = 2**26  # of products that wait for their sum, float32: 256 MiB

_library = torch.library.Library("cuda_llm_ops", "FRAGMENT")  # kept: its registrations end with it
_gemm = torch.ops.cuda_llm_ops.gemm.default
_tensor_core_gemm = torch.ops.cuda_llm_ops.tensor_core_gemm.default
_AUTOCAST = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU) | torch._C.DispatchKeySet(
    torch._C.DispatchKey.AutocastCUDA
)

for _name, _schema in _SCHEMAS.items():
    _training = f"{_name}_training"
    _library.define(_training + _schema)
    for _key in ("CPU", "CUDA"):
        _library.impl(_training, {"gemm": _gemm, "tensor_core_gemm": _tensor_core_gemm}[_name], _key)
    for _device, _autocast in DEVICES.items():
        _library.impl(_training, _rule(_training, _device), _autocast.name)
gemm_training = torch.ops.cuda_llm_ops.gemm_training.default
tensor_core_gemm_training = torch.ops.cuda_llm_ops.tensor_core_gemm_training.default
torch.library.register_fake("cuda_llm_ops::gemm_training", _fake_gemm, lib=_library)
torch.library.register_fake("cuda_llm_ops::tensor_core_gemm_training", _fake_tensor_core_gemm, lib=_library)

# The gradient of one operand. d_out: (m, n) or (batch, m, n). other: the other operand as it was given, transposed if
# trans_other. The result is (m, k) for a and (k, n) for b; with trans_own those two are swapped, as the operand had
# them. With summed it is the sum over the batch.
_library.define(
    f"{_GRADIENT}(Tensor d_out, Tensor other, float alpha, bool of_a, bool trans_own, bool trans_other, bool summed) "
    "-> Tensor"
)


def _gradient(
    d_out: Tensor, other: Tensor, alpha: float, of_a: bool, trans_own: bool, trans_other: bool, summed: bool
) -> Tensor:
    # With op(x) the operand as the product sees it: d op(a) = alpha d_out op(b)ᵀ and d op(b) = alpha op(a)ᵀ d_out.
    transposed = other if trans_other else other.mT
    left, right = (d_out, transposed) if of_a else (transposed, d_out)
    if trans_own:
        left, right = right.mT, left.mT
    # A backward inside a torch.autocast block has the forward's dtypes, not the block's.
    with torch._C._ExcludeDispatchKeyGuard(_AUTOCAST):
        return _summed_product(left, right, alpha) if summed else _gemm(left, right, alpha)


def _summed_product(left: Tensor, right: Tensor, alpha: float) -> Tensor:
    """alpha times the sum over the batch of left (batch, rows, n) times right (batch, n, columns)."""
    wide = left.permute(1, 0, 2)
    if _mergeable(wide, 1) and _mergeable(right, 0):
        return _gemm(wide.flatten(1, 2), right.flatten(0, 1), alpha)
    rows, columns = left.shape[1], right.shape[2]
    total = torch.zeros(rows, columns, dtype=torch.float32, device=left.device)
    if alpha != 0 and total.numel():  # what is multiplied by zero is not read
        product = _gemm if left.dtype == torch.float32 else _tensor_core_gemm
        step = max(1, _PARTIAL_ELEMENTS // total.numel())
        for members in zip(left.split(step), right.split(step), strict=True):
            total += product(*members).sum(0)
    return total.mul_(alpha).to(left.dtype)  # rounded once, as one product is


def _mergeable(tensor: Tensor, dim: int) -> bool:
    """Dimensions dim and dim + 1 can be one without a copy."""
    outer, inner = tensor.shape[dim : dim + 2]
    return outer <= 1 or inner <= 1 or tensor.stride(dim) == inner * tensor.stride(dim + 1)


for _key in ("CPU", "CUDA"):
    _library.impl(_GRADIENT, _gradient, _key)
_gemm_gradient = getattr(torch.ops.cuda_llm_ops, _GRADIENT).default


@torch.library.register_fake(f"cuda_llm_ops::{_GRADIENT}", lib=_library)
def _(
    d_out: Tensor, other: Tensor, alpha: float, of_a: bool, trans_own: bool, trans_other: bool, summed: bool
) -> Tensor:
    k = other.shape[-1 if of_a == trans_other else -2]
    shape = (d_out.shape[-2], k) if of_a else (k, d_out.shape[-1])
    batch = () if summed else d_out.shape[:-2]
    return other.new_empty((*batch, *(shape[::-1] if trans_own else shape)))


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    a, b, ctx.alpha, ctx.beta, _, ctx.trans_a, ctx.trans_b = inputs
    needs_a, needs_b = ctx.needs_input_grad[:2]
    ctx.save_for_backward(a if needs_b else None, b if needs_a else None)
    ctx.shared = a.dim() < output.dim(), b.dim() < output.dim()
    ctx.set_materialize_grads(False)


def _save_tensor_core(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    _save(ctx, (*inputs, 1.0, 0.0, None, False, False), output)
    ctx.dtype = inputs[0].dtype


def _of_operands(ctx: Any, d_out: Tensor) -> tuple[Tensor | None, Tensor | None]:
    a, b = ctx.saved_tensors
    of_a = of_b = None
    if b is not None:
        of_a = _gemm_gradient(d_out, b, ctx.alpha, True, ctx.trans_a, ctx.trans_b, ctx.shared[0])
    if a is not None:
        of_b = _gemm_gradient(d_out, a, ctx.alpha, False, ctx.trans_b, ctx.trans_a, ctx.shared[1])
    return of_a, of_b


def _differentiate(ctx: Any, d_out: Tensor | None) -> tuple[Any, ...]:
    if d_out is None:
        return (None,) * 7
    of_c = None
    if any(
        ctx.needs_input_grad[4:5]
    ):  # shorter where defaults were left out; c was not read where beta is 0, and so its gradient reads nothing
        of_c = torch.zeros_like(d_out) if ctx.beta == 0 else d_out if ctx.beta == 1 else d_out * ctx.beta
    return *_of_operands(ctx, d_out), None, None, of_c, None, None


def _differentiate_tensor_core(ctx: Any, d_out: Tensor | None) -> tuple[Any, ...]:
    return (None, None) if d_out is None else _of_operands(ctx, d_out.to(ctx.dtype))


def _refuse_double_backward(ctx: Any, *_: Any) -> tuple[Any, ...]:
    raise NotImplementedError("gemm_gradient: there are no second derivatives; call backward without create_graph")


torch.library.register_autograd("cuda_llm_ops::gemm_training", _differentiate, setup_context=_save, lib=_library)
torch.library.register_autograd(
    "cuda_llm_ops::tensor_core_gemm_training", _differentiate_tensor_core, setup_context=_save_tensor_core, lib=_library
)
torch.library.register_autograd(f"cuda_llm_ops::{_GRADIENT}", _refuse_double_backward, lib=_library)
