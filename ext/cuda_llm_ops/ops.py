"""The operators as Python functions, on the current stream of the inputs' device; some have a backward."""

from __future__ import annotations

from typing import Literal, NoReturn, Unpack, overload

import torch
from torch import Tensor
from torch.autograd import forward_ad

from .backward import flash_attention_training as _flash_attention_training
from .backward import naive_attention_training as _naive_attention_training
from .backward import tiled_attention_training as _tiled_attention_training
from .backward_gemm import gemm_training as _gemm_training
from .backward_gemm import tensor_core_gemm_training as _tensor_core_gemm_training
from .errors import translated
from .window import Options, Window, sides

# Bound once: a look-up through torch.ops at every call costs more than the call's checks.
_naive_attention = torch.ops.cuda_llm_ops.naive_attention.default
_tiled_attention = torch.ops.cuda_llm_ops.tiled_attention.default
_flash_attention = torch.ops.cuda_llm_ops.flash_attention.default
_flash_attention_general = torch.ops.cuda_llm_ops.flash_attention_general.default
_flash_decode = torch.ops.cuda_llm_ops.flash_decode.default
_flash_decode_quantised = torch.ops.cuda_llm_ops.flash_decode_quantised.default
_8BIT = (torch.float8_e4m3fn, torch.int8)
_gemm = torch.ops.cuda_llm_ops.gemm.default
_tensor_core_gemm = torch.ops.cuda_llm_ops.tensor_core_gemm.default


def naive_attention(q: Tensor, k: Tensor, v: Tensor, is_causal: bool = False, *, scale: float | None = None) -> Tensor:
    """softmax(scale q kᵀ) v with the score matrix written out in full: the textbook's algorithm, O(Sq Skv) memory.

    Arguments, result and errors are those of `flash_attention`; but the causal mask is added to the scores, so that a
    NaN in a hidden key may show, as in the math backend of scaled_dot_product_attention.
    The backward is that of `flash_attention`: on a GPU it computes the rows' logarithms anew, in linear memory.
    """
    try:
        if forward_ad._current_level >= 0:
            _refuse_tangents("naive_attention", q=q, k=k, v=v)
        if torch.is_grad_enabled() and _any_requires_grad(q, k, v):
            return _naive_attention_training(q, k, v, is_causal, scale)
        return _naive_attention(q, k, v, is_causal, scale)
    except (RuntimeError, AttributeError) as error:
        _raise_for_attention("naive_attention", error, q, k, v, is_causal, scale)


def tiled_attention(q: Tensor, k: Tensor, v: Tensor, is_causal: bool = False, *, scale: float | None = None) -> Tensor:
    """softmax(scale q kᵀ) v in blocks held on the chip: the score matrix is never in global memory in full.

    Arguments, result, errors and backward are those of `flash_attention`.
    """
    try:
        if forward_ad._current_level >= 0:
            _refuse_tangents("tiled_attention", q=q, k=k, v=v)
        if torch.is_grad_enabled() and _any_requires_grad(q, k, v):
            return _tiled_attention_training(q, k, v, is_causal, scale)
        return _tiled_attention(q, k, v, is_causal, scale)
    except (RuntimeError, AttributeError) as error:
        _raise_for_attention("tiled_attention", error, q, k, v, is_causal, scale)


@overload
def flash_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    is_causal: bool = False,
    *,
    return_lse: Literal[False] = False,
    **options: Unpack[Options],
) -> Tensor: ...


@overload
def flash_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    is_causal: bool = False,
    *,
    return_lse: Literal[True],
    **options: Unpack[Options],
) -> tuple[Tensor, Tensor]: ...


@overload
def flash_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    is_causal: bool = False,
    *,
    return_lse: bool,
    **options: Unpack[Options],
) -> Tensor | tuple[Tensor, Tensor]: ...


def flash_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    bottom_right: bool = False,
    window: Window | None = None,
    return_lse: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """softmax(scale q kᵀ) v by an online softmax, on tensor cores for 16-bit inputs; O(Sq + Skv) memory.

    Dao et al., FlashAttention (2022) and FlashAttention-2 (2023). Semantics are those of
    torch.nn.functional.scaled_dot_product_attention: a row that sees only scores of minus infinity gives zeros, and so
    does an empty key sequence, and a row from which the mask hides every key.

    Args:
        q: (batch, heads, seq_q, head_dim), float32, float16 or bfloat16, head_dim at most 256.
        k: (batch, kv_heads, seq_kv, head_dim); heads is a multiple of kv_heads, and query head h reads key head
            h // (heads // kv_heads).
        v: (batch, kv_heads, seq_kv, value_dim), value_dim at most head_dim.
        is_causal: query i sees keys j <= i + d.
        scale: factor of the scores, finite and not negative; 1 / sqrt(head_dim) by default.
        bottom_right: what d is, in the causal mask and in the window: 0 by default, the diagonal from the top left
            corner, also where seq_q and seq_kv differ; with bottom_right seq_kv - seq_q, so that the last query meets
            the last key, as FlashAttention has it.
        window: (left, right), FlashAttention's sliding window: query i sees the keys j with
            i + d - left <= j <= i + d + right; -1 for a side without a limit. is_causal is a right of 0.
        return_lse: also return the logarithms of the rows' sums.

    Any strides are taken as they are, except that a tensor whose last dimension is not dense is copied. Under
    torch.autocast the three are cast to its dtype first.

    Where an input requires grad, the result has a backward, for every input above and on every device that computes
    it, in memory linear in the sequences; so have the logarithms. There are no second derivatives. The same inputs
    give the same bits at every launch, but for the gradient of q on a GPU of compute capability 9.0 with head_dim up
    to 128 and 16-bit inputs: there too under torch.use_deterministic_algorithms(True), at some cost in time.

    Returns:
        (batch, heads, seq_q, value_dim), contiguous, of q's dtype; with return_lse a pair of that and
        log(sum over the keys that a query sees of exp(scale q·k)), the natural logarithm, (batch, heads, seq_q),
        contiguous, float32, minus infinity where a query sees no key.

    Raises:
        TypeError: an argument is no tensor, or of a dtype that is not supported, or dtypes differ.
        ValueError: rank, sizes, devices, scale or window do not fit, or an offset passes 2**31 elements.
        NotImplementedError: head_dim is over 256, value_dim is over head_dim, a tensor is not strided, its device has
            no kernel in this build, an input carries a tangent, or torch.func differentiates the call; or a sequence is
            over 2**28 with one of the last three arguments or a gradient.
        torch.OutOfMemoryError: the output or the workspace cannot be allocated.
    """
    try:
        if forward_ad._current_level >= 0:
            _refuse_tangents("flash_attention", q=q, k=k, v=v)
        if torch.is_grad_enabled() and _any_requires_grad(q, k, v):
            left, right = sides("flash_attention", window)
            pair = _flash_attention_training(q, k, v, is_causal, scale, bottom_right, left, right)
            return pair if return_lse else pair[0]
        if window is None and bottom_right is False and return_lse is False:
            return _flash_attention(q, k, v, is_causal, scale)
        left, right = sides("flash_attention", window)
        out, lse = _flash_attention_general(q, k, v, is_causal, scale, bottom_right, left, right, return_lse)
        return (out, lse) if return_lse else out
    except (RuntimeError, AttributeError) as error:
        flags = {"bottom_right": ("bool", bottom_right), "return_lse": ("bool", return_lse)}
        _raise_for_attention("flash_attention", error, q, k, v, is_causal, scale, flags)


def flash_decode(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    cache_lens: Tensor,
    block_table: Tensor | None = None,
    *,
    scale: float | None = None,
    k_scale: Tensor | None = None,
    v_scale: Tensor | None = None,
) -> Tensor:
    """Attention of the last tokens of each sequence, one or a few, against the cache that holds the whole sequence.

    Flash-decoding (Dao et al., 2023): the keys of a sequence are split over the device, and the parts combined, in one
    kernel. Nothing depends on the lengths on the host, so that a captured CUDA graph serves while sequences grow.

    Args:
        q: (batch, heads, seq_q, head_dim), float32, float16 or bfloat16, head_dim at most 256: the queries of the
            newest seq_q tokens of each sequence. Any strides.
        k_cache: (batch, kv_heads, capacity, head_dim), or (pages, page_size, kv_heads, head_dim) with a block_table,
            as FlashAttention and vLLM lay out their pages. Any strides, but 1 along head_dim: a cache stored as
            (batch, capacity, kv_heads, head_dim) goes in as `cache.transpose(1, 2)`. heads is a multiple of kv_heads,
            and query head h reads kv head h // (heads // kv_heads). Of q's dtype, or float8_e4m3fn or int8.
        v_cache: the shape and dtype of k_cache.
        cache_lens: (batch,), int32, on q's device: how many tokens of each sequence are in the cache, those of q
            included. Query i sees the keys j < cache_lens - (seq_q - 1 - i): causal, aligned at the bottom right. A
            query that sees no key gives zeros. What lies behind a length in the cache is never used.
        block_table: (batch, pages of a sequence), int32: where the pages of each sequence lie in the pool, in order.
            Entries behind a length are never read.
        scale: factor of the scores, finite and not negative; 1 / sqrt(head_dim) by default.
        k_scale: float32, of an 8-bit cache alone: a key is its scale times the numbers in the cache. A tensor without
            dimensions is the scale of the whole cache, (kv_heads,) are those of its heads, and the shape of k_cache
            without head_dim are those of its tokens. Any strides, so that `expand` may share scales. None means 1.
        v_scale: likewise, of the values; None exactly if k_scale is None.

    The numbers of an 8-bit cache are read as they are; nothing is dequantised to memory. The error is that of the
    products and of the softmax: the reference is the same attention on the dequantised keys and values.

    On a GPU lengths and page numbers are not checked, since the host would have to wait for them: a length outside 0
    to the capacity is taken as the nearest of the two, and a page outside the pool reads as zeros.

    Returns:
        (batch, heads, seq_q, head_dim), contiguous, of q's dtype.

    Raises:
        TypeError: an argument is no tensor, or of a dtype that is not supported, or dtypes differ.
        ValueError: rank, sizes, devices or scale do not fit, a cache is not dense along head_dim, or, on the CPU, a
            length or a page number is out of range.
        NotImplementedError: an input requires grad, head_dim is over 256, a tensor is not strided, or its device has
            no kernel in this build.
        torch.OutOfMemoryError: the output or the workspace cannot be allocated.
    """
    try:
        _refuse_gradients("flash_decode", q=q, k_cache=k_cache, v_cache=v_cache)
        if k_scale is not None or v_scale is not None or k_cache.dtype in _8BIT:
            return _flash_decode_quantised(
                q, k_cache, v_cache, cache_lens, block_table, k_scale=k_scale, v_scale=v_scale, scale=scale
            )
        return _flash_decode(q, k_cache, v_cache, cache_lens, block_table, scale)
    except (RuntimeError, AttributeError) as error:
        tensors = {"q": q, "k_cache": k_cache, "v_cache": v_cache, "cache_lens": cache_lens, "block_table": block_table}
        tensors |= {"k_scale": k_scale, "v_scale": v_scale}
        raise translated("flash_decode", error, tensors, {"scale": ("number or None", scale)}) from None


def gemm(
    a: Tensor,
    b: Tensor,
    *,
    alpha: float = 1.0,
    beta: float = 0.0,
    c: Tensor | None = None,
    trans_a: bool = False,
    trans_b: bool = False,
) -> Tensor:
    """alpha · op(a) · op(b) + beta · c, accumulated in float32, where op transposes the last two dimensions if asked.

    Args:
        a: (m, k) or (batch, m, k); (k, m) with `trans_a`. float32, float16 or bfloat16.
        b: (k, n) or (batch, k, n); (n, k) with `trans_b`. The dtype of a. A 2-D operand is shared by the batch of the
            other.
        alpha: factor of the product; where it is 0 the product is not read (BLAS's convention, as in torch.addmm).
        beta: factor of c; where it is 0, c is not read.
        c: the shape and dtype of the result, any strides.
        trans_a: take a transposed, without a copy; a transposed view serves as well.
        trans_b: likewise for b.

    An operand with a stride of 1 in neither of its last two dimensions is copied.

    Where a, b or c requires grad, the result has a backward, by products of the same kind: no operand is copied to
    transpose it, and only gradients that are asked for are computed. alpha and beta have no gradient, and there are no
    second derivatives.

    Returns:
        (m, n) or (batch, m, n), contiguous, of a's dtype.

    Raises:
        TypeError: an argument is no tensor, or of a dtype that is not supported, or dtypes differ.
        ValueError: rank, sizes or devices do not fit, beta is not 0 and c is None, alpha or beta is beyond float32, or
            an offset passes 2**31 elements.
        NotImplementedError: alpha or beta requires grad, an input carries a tangent, torch.func differentiates the
            call, a tensor is not strided, or its device has no kernel in this build.
        torch.OutOfMemoryError: the output cannot be allocated.
    """
    try:
        if type(alpha) is not float or type(beta) is not float:
            _refuse_factors(alpha=alpha, beta=beta)
        if forward_ad._current_level >= 0:
            _refuse_tangents("gemm", a=a, b=b, c=c)
        if torch.is_grad_enabled() and (
            a.requires_grad or b.requires_grad or (c is not None and c.requires_grad) or _wrapped_requires_grad(a, b, c)
        ):
            return _gemm_training(a, b, alpha, beta, c, trans_a, trans_b)
        return _gemm(a, b, alpha, beta, c, trans_a, trans_b)
    except (RuntimeError, AttributeError) as error:
        options = {
            "alpha": ("number", alpha),
            "beta": ("number", beta),
            "trans_a": ("bool", trans_a),
            "trans_b": ("bool", trans_b),
        }
        raise translated("gemm", error, {"a": a, "b": b, "c": c}, options) from None


def tensor_core_gemm(a: Tensor, b: Tensor) -> Tensor:
    """a · b on tensor cores: 16-bit in, accumulated and returned in float32.

    Args:
        a: (m, k) or (batch, m, k), float16 or bfloat16; a transposed view is taken without a copy.
        b: (k, n) or (batch, k, n), the dtype of a. A 2-D operand is shared by the batch of the other.

    The backward is that of `gemm`. The gradient of the result is float32; it is rounded to the dtype of a first.

    Returns:
        (m, n) or (batch, m, n), contiguous, float32.

    Raises:
        As `gemm`; float32 inputs are a TypeError.
    """
    try:
        if forward_ad._current_level >= 0:
            _refuse_tangents("tensor_core_gemm", a=a, b=b)
        if torch.is_grad_enabled() and (a.requires_grad or b.requires_grad or _wrapped_requires_grad(a, b)):
            return _tensor_core_gemm_training(a, b)
        return _tensor_core_gemm(a, b)
    except (RuntimeError, AttributeError) as error:
        raise translated("tensor_core_gemm", error, {"a": a, "b": b}, {}) from None


def _refuse_gradients(op: str, **tensors: Tensor | None) -> None:
    # Without a backward, torch would hand on a result without a gradient, or without its tangent: wrong in silence.
    if torch.is_grad_enabled():
        for name, tensor in tensors.items():
            if tensor is not None and tensor.requires_grad:
                raise NotImplementedError(
                    f"{op}: {name} requires grad, and the operator is forward only; call it under torch.no_grad() or "
                    f"pass {name}.detach()"
                )
    _refuse_tangents(op, **tensors)


def _refuse_factors(**factors: object) -> None:
    for name, factor in factors.items():
        if isinstance(factor, Tensor) and factor.requires_grad and torch.is_grad_enabled():
            raise NotImplementedError(
                f"NotImplementedError: gemm: {name} requires grad, but has no gradient; pass float({name})"
            )


def _any_requires_grad(q: Tensor | None, k: Tensor | None, v: Tensor | None) -> bool:
    # A None goes on to the operator, which refuses it by name. No loop, which would cost a microsecond.
    return (
        (q is not None and q.requires_grad)
        or (k is not None and k.requires_grad)
        or (v is not None and v.requires_grad)
        or _wrapped_requires_grad(q, k, v)
    )


def _wrapped_requires_grad(*tensors: Tensor | None) -> bool:
    """True if torch.vmap wraps a tensor that requires grad: the wrapper itself does not say so."""
    if torch._C._are_functorch_transforms_active():
        for one in tensors:
            while one is not None and torch._C._functorch.is_functorch_wrapped_tensor(one):
                one = torch._C._functorch.get_unwrapped(one)
            if one is not None and one.requires_grad:
                return True
    return False


def _refuse_tangents(op: str, **tensors: Tensor | None) -> None:
    if forward_ad._current_level >= 0:
        for name, tensor in tensors.items():
            if tensor is not None and forward_ad.unpack_dual(tensor).tangent is not None:
                raise NotImplementedError(f"{op}: {name} carries a tangent, and the operator has no forward-mode rule")


def _raise_for_attention(
    op: str,
    error: Exception,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    is_causal: bool,
    scale: float | None,
    flags: dict[str, tuple[str, bool]] | None = None,
) -> NoReturn:
    options = {"is_causal": ("bool", is_causal), "scale": ("number or None", scale), **(flags or {})}
    raise translated(op, error, {"q": q, "k": k, "v": v}, options) from None
