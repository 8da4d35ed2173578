"""Fake kernels: the shape, dtype and device of an operator's output without its data (torch.compile, meta tensors).

They check what they need to know the output; the full checks are the operators' own.
"""

from __future__ import annotations

import torch
from torch import Tensor

_DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def _require(holds: bool, error: type[Exception], message: str) -> None:
    if not holds:
        raise error(message)


def _check_pair(op: str, name: str, tensor: Tensor, first_name: str, first: Tensor) -> None:
    _require(tensor.dtype == first.dtype, TypeError, f"{op}: {name} is {tensor.dtype}, {first_name} {first.dtype}")
    _require(
        tensor.device == first.device, ValueError, f"{op}: {name} on {tensor.device}, {first_name} on {first.device}"
    )


def _check_values(op: str, q: Tensor, k: Tensor, v: Tensor) -> None:
    _require(
        v.shape[:-1] == k.shape[:-1], ValueError, f"{op}: v {v.shape} against k {k.shape}; only head_dim may differ"
    )
    _require(
        v.shape[-1] <= q.shape[-1],
        NotImplementedError,
        f"{op}: v has head_dim {v.shape[-1]} and q has {q.shape[-1]}; that of v must not be larger",
    )


def _attention(op: str, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        _require(tensor.dim() == 4, ValueError, f"{op}: {name} has {tensor.dim()} dimensions; it must have 4")
        _check_pair(op, name, tensor, "q", q)
    _require(q.dtype in _DTYPES, TypeError, f"{op}: q is {q.dtype}; it must be one of {_DTYPES}")
    _require(
        k.shape[0] == q.shape[0] and k.shape[3] == q.shape[3], ValueError, f"{op}: k {k.shape} against q {q.shape}"
    )
    _require(q.shape[3] <= 256, NotImplementedError, f"{op}: q has head_dim {q.shape[3]}; it must be at most 256")
    divisible = q.shape[1] == 0 if k.shape[1] == 0 else q.shape[1] % k.shape[1] == 0
    _require(divisible, ValueError, f"{op}: heads of q {q.shape} are no multiple of those of k {k.shape}")
    _check_values(op, q, k, v)
    return q.new_empty((*q.shape[:3], v.shape[3]))


def _gemm(op: str, a: Tensor, b: Tensor, trans_a: bool, trans_b: bool) -> Tensor:
    for name, tensor in (("a", a), ("b", b)):
        _require(tensor.dim() in (2, 3), ValueError, f"{op}: {name} has {tensor.dim()} dimensions; it must have 2 or 3")
    _check_pair(op, "b", b, "a", a)
    left = a.transpose(-1, -2) if trans_a else a
    right = b.transpose(-1, -2) if trans_b else b
    _require(left.shape[-1] == right.shape[-2], ValueError, f"{op}: inner sizes of a {a.shape} and b {b.shape} differ")
    if a.dim() == 3 and b.dim() == 3:
        _require(a.shape[0] == b.shape[0], ValueError, f"{op}: batches of a {a.shape} and b {b.shape} differ")
    batch = a.shape[:1] if a.dim() == 3 else b.shape[:1] if b.dim() == 3 else a.shape[:0]
    return a.new_empty((*batch, left.shape[-2], right.shape[-1]))


@torch.library.register_fake("cuda_llm_ops::naive_attention")
def _(q: Tensor, k: Tensor, v: Tensor, is_causal: bool = False, scale: float | None = None) -> Tensor:
    return _attention("naive_attention", q, k, v)


@torch.library.register_fake("cuda_llm_ops::tiled_attention")
def _(q: Tensor, k: Tensor, v: Tensor, is_causal: bool = False, scale: float | None = None) -> Tensor:
    return _attention("tiled_attention", q, k, v)


@torch.library.register_fake("cuda_llm_ops::flash_attention")
def _(q: Tensor, k: Tensor, v: Tensor, is_causal: bool = False, scale: float | None = None) -> Tensor:
    return _attention("flash_attention", q, k, v)


@torch.library.register_fake("cuda_llm_ops::gemm")
def _fake_gemm(
    a: Tensor,
    b: Tensor,
    alpha: float = 1.0,
    beta: float = 0.0,
    c: Tensor | None = None,
    trans_a: bool = False,
    trans_b: bool = False,
) -> Tensor:
    _require(a.dtype in _DTYPES, TypeError, f"gemm: a is {a.dtype}; it must be one of {_DTYPES}")
    out = _gemm("gemm", a, b, trans_a, trans_b)
    if c is not None:
        _check_pair("gemm", "c", c, "a", a)
        _require(
            c.shape == out.shape, ValueError, f"gemm: c has shape {c.shape}; it must have the output's, {out.shape}"
        )
    return out


@torch.library.register_fake("cuda_llm_ops::tensor_core_gemm")
def _fake_tensor_core_gemm(a: Tensor, b: Tensor) -> Tensor:
    _require(a.dtype in _DTYPES[1:], TypeError, f"tensor_core_gemm: a is {a.dtype}; it must be one of {_DTYPES[1:]}")
    return _gemm("tensor_core_gemm", a, b, False, False).to(torch.float32)


def _decode(q: Tensor, k_cache: Tensor, v_cache: Tensor, cache_lens: Tensor, block_table: Tensor | None) -> Tensor:
    """Of flash_decode, but for the dtypes of its caches."""
    op = "flash_decode"
    _require(q.dim() == 4, ValueError, f"{op}: q has {q.dim()} dimensions; it must have 4")
    _require(q.dtype in _DTYPES, TypeError, f"{op}: q is {q.dtype}; it must be one of {_DTYPES}")
    _require(q.shape[3] <= 256, NotImplementedError, f"{op}: q has head_dim {q.shape[3]}; it must be at most 256")
    for name, cache in (("k_cache", k_cache), ("v_cache", v_cache)):
        _require(cache.dim() == 4, ValueError, f"{op}: {name} has {cache.dim()} dimensions; it must have 4")
        _require(cache.device == q.device, ValueError, f"{op}: {name} on {cache.device}, q on {q.device}")
        _require(cache.shape[3] == q.shape[3], ValueError, f"{op}: {name} {cache.shape} against q {q.shape}")
    _require(
        v_cache.shape == k_cache.shape,
        ValueError,
        f"{op}: v_cache {v_cache.shape} against k_cache {k_cache.shape}; they must be equal",
    )
    indices = [("cache_lens", cache_lens, 1)] + ([] if block_table is None else [("block_table", block_table, 2)])
    for name, index, rank in indices:
        _require(index.dim() == rank, ValueError, f"{op}: {name} has {index.dim()} dimensions; it must have {rank}")
        _require(index.dtype == torch.int32, TypeError, f"{op}: {name} is {index.dtype}; it must be torch.int32")
        _require(index.device == q.device, ValueError, f"{op}: {name} on {index.device}, q on {q.device}")
        _require(index.shape[0] == q.shape[0], ValueError, f"{op}: {name} {index.shape} against q {q.shape}")
    if block_table is None:
        _require(k_cache.shape[0] == q.shape[0], ValueError, f"{op}: k_cache {k_cache.shape} against q {q.shape}")
    kv_heads = k_cache.shape[1 if block_table is None else 2]
    divisible = q.shape[1] == 0 if kv_heads == 0 else q.shape[1] % kv_heads == 0
    _require(divisible, ValueError, f"{op}: heads of q {q.shape} are no multiple of those of k_cache {k_cache.shape}")
    return q.new_empty(q.shape)


@torch.library.register_fake("cuda_llm_ops::flash_decode")
def _(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    cache_lens: Tensor,
    block_table: Tensor | None = None,
    scale: float | None = None,
) -> Tensor:
    for name, cache in (("k_cache", k_cache), ("v_cache", v_cache)):
        _check_pair("flash_decode", name, cache, "q", q)
    return _decode(q, k_cache, v_cache, cache_lens, block_table)


@torch.library.register_fake("cuda_llm_ops::flash_decode_quantised")
def _(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    cache_lens: Tensor,
    block_table: Tensor | None = None,
    k_scale: Tensor | None = None,
    v_scale: Tensor | None = None,
    scale: float | None = None,
) -> Tensor:
    op = "flash_decode"
    out = _decode(q, k_cache, v_cache, cache_lens, block_table)
    for name, cache in (("k_cache", k_cache), ("v_cache", v_cache)):
        right = cache.dtype in (torch.float8_e4m3fn, torch.int8)
        _require(right, TypeError, f"{op}: {name} is {cache.dtype}; with scales it must be float8_e4m3fn or int8")
        _require(cache.dtype == k_cache.dtype, TypeError, f"{op}: {name} is {cache.dtype}, k_cache {k_cache.dtype}")
    _require((k_scale is None) == (v_scale is None), ValueError, f"{op}: give both scales or neither")
    kv_heads = k_cache.shape[1 if block_table is None else 2]
    for name, scales in (("k_scale", k_scale), ("v_scale", v_scale)):
        if scales is None:
            continue
        _require(scales.dtype == torch.float32, TypeError, f"{op}: {name} is {scales.dtype}; it must be float32")
        _require(scales.device == q.device, ValueError, f"{op}: {name} on {scales.device}, q on {q.device}")
        fits = tuple(scales.shape) in ((), (kv_heads,), tuple(k_cache.shape[:3]))
        _require(fits, ValueError, f"{op}: {name} {scales.shape} against k_cache {k_cache.shape}")
    return out
