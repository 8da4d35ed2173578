"""torch's scaled_dot_product_attention, through its own choice of backend or a given one."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from perfsuite.problems.base import RivalUnavailableError
from perfsuite.problems.masked_sdpa import masked_attention
from perfsuite.problems.quantise import dequantised

if TYPE_CHECKING:
    import torch

    from perfsuite.problems.families.attention import Attention
    from perfsuite.problems.families.decode import Decode

BACKENDS = {"flash": "FLASH_ATTENTION", "cudnn": "CUDNN_ATTENTION", "efficient": "EFFICIENT_ATTENTION", "math": "MATH"}
_HEADLINES = {"flash": "Flash attention", "cudnn": "cuDNN attention", "efficient": "Memory efficient", "math": "Math"}
SERVES = ("attention", "decode")
NAMES = ("sdpa", *(f"sdpa:{backend}" for backend in BACKENDS))


def rival(problem: Attention | Decode, name: str) -> Callable[..., Any]:
    """SDPA, called as candidates of `problem` are; at the call, RivalUnavailableError if the backend refuses it."""
    served: dict[str, Callable[..., Any]] = {"attention": _attention, "decode": _decode}
    return served[problem.family](problem, name.partition(":")[2] or None, problem.heads != problem.kv_heads)


def _attention(problem: Attention, backend: str | None, grouped: bool) -> Callable[..., Any]:
    if not problem.banded:
        return sdpa(backend, grouped=grouped)
    # FlashAttention-2 itself has windows, so through "flash" only a CPU needs the mask as a tensor.
    return masked_attention(problem, backend, sdpa(None if backend == "flash" else backend, grouped=grouped))


def _decode(problem: Decode, backend: str | None, grouped: bool) -> Callable[..., Any]:
    attention = sdpa(backend, grouped=grouped)
    masks: dict[torch.device, torch.Tensor] = {}

    def library_decode(
        q: torch.Tensor,
        k_cache: torch.Tensor,
        v_cache: torch.Tensor,
        cache_lens: torch.Tensor,
        block_table: torch.Tensor | None = None,
        **kwargs: Any,
    ) -> torch.Tensor:
        if problem.seq_q > 1:
            if q.device not in masks:  # SDPA's own causal mask is aligned at the top left
                masks[q.device] = problem.visible(q.device)
            kwargs["attn_mask"] = masks[q.device]
        if problem.cache_dtype is not None:  # torch has no attention on quantised caches
            scales = kwargs.pop("k_scale"), kwargs.pop("v_scale")
            k_cache, v_cache = (
                dequantised(cache, scale, problem.head_axis, q.dtype)
                for cache, scale in zip((k_cache, v_cache), scales, strict=True)
            )
        return attention(q, problem.in_memory(k_cache), problem.in_memory(v_cache), **kwargs)

    return library_decode


def sdpa(backend: str | None, *, grouped: bool) -> Callable[..., Any]:
    """`scaled_dot_product_attention(q, k, v, *, is_causal=False, scale=None)`, through one backend or its own choice.

    backend: None for SDPA's own choice, or a key of BACKENDS. The function raises RivalUnavailableError if the backend
    cannot run the arguments.
    """
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    attention = torch.nn.functional.scaled_dot_product_attention

    def library_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **kwargs: Any) -> torch.Tensor:
        return attention(q, k, v, enable_gqa=grouped, **kwargs)

    if backend is None:
        return library_attention
    chosen = getattr(SDPBackend, BACKENDS[backend])

    def library_attention_backend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **kwargs: Any) -> torch.Tensor:
        try:
            with sdpa_kernel(chosen):
                return attention(q, k, v, enable_gqa=grouped, **kwargs)
        except RuntimeError as error:
            if isinstance(error, torch.cuda.OutOfMemoryError) or not _refused(error):
                raise
        with warnings.catch_warnings(record=True) as given, sdpa_kernel(chosen):
            warnings.simplefilter("always")
            try:
                return attention(q, k, v, enable_gqa=grouped, **kwargs)
            except RuntimeError as error:
                why = why_not(backend, q.device.type, [str(warning.message) for warning in given])
                raise RivalUnavailableError(f"sdpa:{backend} cannot run this problem: {why}") from error

    return library_attention_backend


def why_not(backend: str, device: str, given: list[str]) -> str:
    """Why SDPA's `backend` refused a call on `device`, from the warnings that torch gave with the refusal."""
    if device == "cpu":
        if backend in ("cudnn", "efficient"):
            return f"the {backend} backend runs on a GPU only, and the arguments are on the CPU"
        return "torch's CPU library refuses these arguments"
    # torch warns about all its kernels, each under a headline, whichever backend was chosen.
    reasons, ours = [], False
    for words in given:
        if " not used because" in words:
            ours = words.startswith(_HEADLINES[backend])
        elif ours:
            reasons.append(words.split(" (Triggered internally", 1)[0].strip())
    return "; ".join(reasons) or "torch gives no reason"


def _refused(error: RuntimeError) -> bool:
    """True if SDPA failed because its one backend refuses the arguments, and not inside a kernel."""
    return "No available kernel" in str(error) or "No viable backend" in str(error)
