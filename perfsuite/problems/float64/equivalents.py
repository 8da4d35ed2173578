"""Float64 forms of torch's operators that exist in narrow dtypes only: fused attention, fused norms, float8 products.

Each takes the operator's arguments in float64, and the operator's own results, for those that are not values: saved
statistics and states of generators. It returns as many results.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

Equivalent = Callable[..., Any]


def equivalent(name: str) -> Equivalent | None:
    """The float64 form of the operator "aten::name"; None if the operator has one itself."""
    return _EQUIVALENTS.get(name)


def _attended(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    bias: torch.Tensor | None,
    *,
    causal: bool,
    scale: float | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """(softmax(q k' scale + bias) v, the logarithms of the sums); heads come before the sequence."""
    import torch

    if q.shape[-3] != k.shape[-3]:  # grouped queries
        k, v = (each.repeat_interleave(q.shape[-3] // each.shape[-3], -3) for each in (k, v))
    logits = q @ k.mT * (q.shape[-1] ** -0.5 if scale is None else scale)
    if bias is not None:
        logits = logits.masked_fill(~bias, -torch.inf) if bias.dtype is torch.bool else logits + bias
    if causal:
        logits = logits.masked_fill(torch.ones_like(logits, dtype=torch.bool).triu(1), -torch.inf)
    return logits.softmax(-1).nan_to_num() @ v, logits.logsumexp(-1)


def _sdpa(own: Any, q: Any, k: Any, v: Any, *rest: Any, bias_at: int | None, drop_at: int, **options: Any) -> Any:
    bias = options.get("attn_mask") if bias_at is None else (rest[bias_at] if len(rest) > bias_at else None)
    dropped = rest[drop_at] if len(rest) > drop_at else 0.0
    if dropped:
        raise NotImplementedError("the weights that a fused attention dropped are not known")
    causal = bool(rest[drop_at + 1]) if len(rest) > drop_at + 1 else False
    out, sums = _attended(q, k, v, bias, causal=causal, scale=options.get("scale"))
    return (out, _like(sums, own[1]), *own[2:])


def _like(value: torch.Tensor, own: torch.Tensor) -> torch.Tensor:
    """The value if it has the operator's shape; otherwise the operator's, which pads its statistics."""
    return value if value.shape == own.shape else own.double()


def _rms_norm(own: Any, x: Any, shape: Any, weight: Any = None, eps: float | None = None) -> Any:
    import torch

    axes = tuple(range(-len(shape), 0))
    # Without eps the operator adds the spacing of the input's dtype; that belongs to what it computes.
    added = torch.finfo(own[0].dtype).eps if eps is None else eps
    scale = (x.square().mean(axes, keepdim=True) + added).rsqrt()
    out = x * scale
    return (out if weight is None else out * weight), scale


def _scaled(operand: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """operand times a scale of one element, of one a row or column, or of one a block."""
    if scale.numel() > 1:
        if scale.dim() != operand.dim():
            raise NotImplementedError(f"scales of shape {tuple(scale.shape)} for {tuple(operand.shape)}")
        for axis, size in enumerate(operand.shape):
            if scale.shape[axis] not in (1, size):
                block = -(-size // scale.shape[axis])
                scale = scale.repeat_interleave(block, axis).narrow(axis, 0, size)
    return operand * scale.to(operand.dtype)


def _scaled_mm(
    own: Any, a: Any, b: Any, scale_a: Any, scale_b: Any, bias: Any = None, result: Any = None, *_: Any, **__: Any
) -> Any:
    product = _scaled(a, scale_a) @ _scaled(b, scale_b)
    if bias is not None:
        product = product + bias
    return product if result is None else product * result


def _scaled_mm_v2(
    own: Any,
    a: Any,
    b: Any,
    scale_a: Any,
    recipe_a: Any,
    swizzle_a: Any,
    scale_b: Any,
    recipe_b: Any,
    swizzle_b: Any,
    bias: Any,
    *_: Any,
    **__: Any,
) -> Any:
    if any([*swizzle_a, *swizzle_b]) or len(scale_a) > 1 or len(scale_b) > 1:
        raise NotImplementedError("swizzled scales, or scales of two levels")
    return _scaled_mm(own, a, b, scale_a[0], scale_b[0], bias)


def _native_dropout(own: Any, x: Any, p: float, train: bool | None = None) -> Any:
    """With the mask that the operator has drawn."""
    if not train and train is not None:
        return x, own[1]
    return x * own[1] * (0.0 if p == 1 else 1.0 / (1.0 - p)), own[1]


def _batch_norm(
    own: Any, x: Any, weight: Any, bias: Any, mean: Any, var: Any, training: bool, factor: float, eps: float
) -> Any:
    import torch

    out, mean_, scale = torch.ops.aten.native_batch_norm(x, weight, bias, mean, var, training, factor, eps)
    return out, _like(mean_, own[1]), _like(scale, own[2]), *own[3:]


def _int8_weights(own: Any, x: Any, weight: Any, scales: Any) -> Any:
    return x @ weight.to(x.dtype).mT * scales


def _grouped_mm(own: Any, a: Any, b: Any, offs: Any = None, bias: Any = None, *_: Any, **__: Any) -> Any:
    import torch

    if bias is not None:
        raise NotImplementedError("a bias of a grouped product")
    if offs is None:
        return a @ b
    ends = [int(end) for end in offs]
    spans = list(zip([0, *ends], ends, strict=False))
    if a.dim() == 2 and b.dim() == 3:
        out = own.double() * 0
        for (first, end), one in zip(spans, b, strict=True):
            out[first:end] = a[first:end] @ one
        return out
    if a.dim() == 2 and b.dim() == 2:
        return torch.stack([a[:, first:end] @ b[first:end] for first, end in spans])
    if a.dim() == 3 and b.dim() == 2:
        out = own.double() * 0
        for (first, end), one in zip(spans, a, strict=True):
            out[:, first:end] = one @ b[:, first:end]
        return out
    raise NotImplementedError("offsets for a product of batches")


def _recurrent(
    own: Any,
    x: Any,
    weights: Any,
    each: int,
    buffer: Any,
    hidden: Any,
    cell: Any,
    mode: int,
    width: int,
    projected: int,
    layers: int,
    batch_first: bool,
    dropout: float,
    train: bool,
    both_ways: bool,
    batch_sizes: Any,
    *_: Any,
) -> Any:
    """cuDNN's recurrent layers, which want their weights in one buffer of one dtype."""
    import torch

    if batch_sizes or (dropout and train):
        raise NotImplementedError("packed sequences, or dropout between layers")
    function: Any = (torch.rnn_relu, torch.rnn_tanh, torch.lstm, torch.gru)[mode]
    state = (hidden, cell) if mode == 2 else hidden
    biased = each - (1 if projected else 0) == 4
    with torch.backends.cudnn.flags(enabled=False):
        out = function(x, state, list(weights), biased, layers, 0.0, False, both_ways, batch_first)
    return (*out, *own[len(out) :])


def _without_bias(own: Any, *given: Any, **options: Any) -> Any:
    return _sdpa(own, *given, bias_at=None, drop_at=0, **options)


def _with_bias(own: Any, *given: Any, **options: Any) -> Any:
    # attn_bias stands first, then whether to keep the sums, then the share to drop.
    return _sdpa(own, *given, bias_at=0, drop_at=2, **options)


def _overrideable(own: Any, *given: Any, **options: Any) -> Any:
    return _sdpa(own, *given, bias_at=0, drop_at=1, **options)


_EQUIVALENTS: dict[str, Equivalent] = {
    "aten::_scaled_dot_product_flash_attention": _without_bias,
    "aten::_scaled_dot_product_flash_attention_for_cpu": _without_bias,
    "aten::_scaled_dot_product_efficient_attention": _with_bias,
    "aten::_scaled_dot_product_cudnn_attention": _with_bias,
    "aten::_scaled_dot_product_fused_attention_overrideable": _overrideable,
    "aten::_fused_rms_norm": _rms_norm,
    "aten::_scaled_mm": _scaled_mm,
    "aten::_scaled_mm_v2": _scaled_mm_v2,
    "aten::_grouped_mm": _grouped_mm,
    "aten::native_dropout": _native_dropout,
    "aten::cudnn_batch_norm": _batch_norm,
    "aten::miopen_batch_norm": _batch_norm,
    "aten::_cudnn_rnn": _recurrent,
    "aten::_weight_int8pack_mm": _int8_weights,
}
