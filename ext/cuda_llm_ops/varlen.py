"""flash_attention over sequences of different lengths, packed one behind the other without padding."""

from __future__ import annotations

from typing import Literal, Unpack, overload

import torch
from torch import Tensor

from .backward import flash_attention_varlen_training as _training
from .errors import translated
from .ops import _any_requires_grad, _refuse_tangents
from .window import Options, Window, sides

_flash_attention_varlen = torch.ops.cuda_llm_ops.flash_attention_varlen.default


class VarlenOptions(Options, total=False):
    """The options of `flash_attention_varlen` whose types do not decide the type of its result."""

    is_causal: bool


@overload
def flash_attention_varlen(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    *,
    return_lse: Literal[False] = False,
    **options: Unpack[VarlenOptions],
) -> Tensor: ...


@overload
def flash_attention_varlen(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    *,
    return_lse: Literal[True],
    **options: Unpack[VarlenOptions],
) -> tuple[Tensor, Tensor]: ...


@overload
def flash_attention_varlen(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    *,
    return_lse: bool,
    **options: Unpack[VarlenOptions],
) -> Tensor | tuple[Tensor, Tensor]: ...


def flash_attention_varlen(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    *,
    is_causal: bool = False,
    scale: float | None = None,
    bottom_right: bool = False,
    window: Window | None = None,
    return_lse: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """`flash_attention` of every sequence by itself, for sequences of different lengths packed into one tensor.

    Sequence b has the rows cu_seqlens_q[b] to cu_seqlens_q[b + 1] - 1 of q and of the result, and those that
    cu_seqlens_k says of k and v. The layout is that of flash_attn_varlen_func (Dao et al.); the causal diagonal is
    counted from the top left unless bottom_right, as everywhere here. One kernel for all sequences.

    Args:
        q: (tokens of all sequences, heads, head_dim), float32, float16 or bfloat16, head_dim at most 256.
        k: (tokens, kv_heads, head_dim); heads is a multiple of kv_heads, and query head h reads key head
            h // (heads // kv_heads).
        v: (tokens, kv_heads, value_dim), value_dim at most head_dim.
        cu_seqlens_q: (sequences + 1,), int32, on q's device: 0, then how many tokens the first 1, 2, ... sequences
            have together. A sequence may be empty.
        cu_seqlens_k: the same for k and v.
        max_seqlen_q: at least the tokens of the longest sequence of q.
        max_seqlen_k: likewise of k.
        is_causal, scale, bottom_right, window, return_lse: as `flash_attention`, sequence by sequence.

    Rows of q that belong to no sequence (behind the last offset) are not computed: what the result has there is not
    defined. On a GPU the offsets are not looked at by the host, which would have to wait for them, so that a captured
    CUDA graph serves new lengths: offsets outside the tensor are taken as its end, and of a sequence longer than
    max_seqlen_q the rows from there on are not computed.

    The backward is that of `flash_attention`, also in the order of its sums: the gradient of q has the same bits at
    every launch under torch.use_deterministic_algorithms(True). Rows that belong to no sequence get zeros as their
    gradient. On a GPU max_seqlen_k must be at least the longest: of a longer sequence the keys from there on
    get zeros too.

    Returns:
        (tokens, heads, value_dim), contiguous, of q's dtype; with return_lse a pair of that and the logarithms of the
        rows' sums, (heads, tokens), contiguous, float32.

    Raises:
        As `flash_attention`; and TypeError where offsets are not int32, ValueError where they do not have one dimension
        or differ in number and, on the CPU, where they do not begin with 0, fall, or disagree with the tokens or the
        maximum.
    """
    op = "flash_attention_varlen"
    try:
        _refuse_tangents(op, q=q, k=k, v=v)
        left, right = sides(op, window)
        offsets = cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k
        mask = is_causal, scale, bottom_right, left, right
        if torch.is_grad_enabled() and _any_requires_grad(q, k, v):
            out, lse = _training(q, k, v, *offsets, *mask)
        else:
            out, lse = _flash_attention_varlen(q, k, v, *offsets, *mask, return_lse)
        return (out, lse) if return_lse else out
    except (RuntimeError, AttributeError) as error:
        tensors = {"q": q, "k": k, "v": v, "cu_seqlens_q": cu_seqlens_q, "cu_seqlens_k": cu_seqlens_k}
        options = {
            "max_seqlen_q": ("number", max_seqlen_q),
            "max_seqlen_k": ("number", max_seqlen_k),
            "is_causal": ("bool", is_causal),
            "scale": ("number or None", scale),
            "bottom_right": ("bool", bottom_right),
            "return_lse": ("bool", return_lse),
        }
        raise translated(op, error, tensors, options) from None
