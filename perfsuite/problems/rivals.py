"""The libraries that candidates are measured against: cuBLAS and SDPA on a GPU, torch's own CPU kernels on a CPU.

Every rival here may be called inside CUDA graph capture. The settings that a fair comparison needs (no reduced
precision in the sums) are made around the call and put back after it, and only where they differ: a rival call costs
the host a few microseconds at most.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from .base import RivalUnavailableError

if TYPE_CHECKING:
    import torch

SDPA_BACKENDS = {
    "flash": "FLASH_ATTENTION",
    "cudnn": "CUDNN_ATTENTION",
    "efficient": "EFFICIENT_ATTENTION",
    "math": "MATH",
}
GEMM_NAMES = ("cublas", "cublas:tuned")
SDPA_NAMES = ("sdpa", *(f"sdpa:{backend}" for backend in SDPA_BACKENDS))
ATTENTION_NAMES = (*SDPA_NAMES, "flash-attn")


@contextmanager
def equal_precision(dtype: torch.dtype) -> Iterator[None]:
    """cuBLAS with sums in full float32, as the candidate's are: no TF32, no reduced-precision reduction of split-K.

    torch allows the latter by default for 16-bit types; a comparison at unequal precision would be none.
    """
    import torch

    matmul = torch.backends.cuda.matmul
    names = {
        torch.float16: ("allow_fp16_reduced_precision_reduction", "allow_fp16_accumulation"),
        torch.bfloat16: ("allow_bf16_reduced_precision_reduction",),
        torch.float32: ("allow_tf32",),
    }.get(dtype, ())
    before = {name: getattr(matmul, name) for name in names}
    before = {name: value for name, value in before.items() if value}
    for name in before:
        setattr(matmul, name, False)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(matmul, name, value)


def cublas(*, batched: bool, out_dtype: torch.dtype | None) -> Callable[..., Any]:
    """`torch.mm` or `torch.bmm` at equal precision.

    out_dtype: None where the result has the operands' dtype. A float32 result of 16-bit operands comes from cuBLAS
    itself on a GPU; torch has no such product on a CPU, and there the operands are widened first.
    """
    import torch

    product = torch.bmm if batched else torch.mm

    def library_gemm(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        if a.device.type == "cpu":
            return product(a, b) if out_dtype is None else product(a.to(out_dtype), b.to(out_dtype))
        with equal_precision(a.dtype):
            return product(a, b) if out_dtype is None else product(a, b, out_dtype=out_dtype)

    return library_gemm


def sdpa(backend: str | None, *, grouped: bool) -> Callable[..., Any]:
    """`scaled_dot_product_attention(q, k, v, *, is_causal=False, scale=None)`, through one backend or its own choice.

    backend: None for the choice that SDPA makes by itself, or a key of SDPA_BACKENDS. The function raises
    RivalUnavailableError where the backend cannot run the arguments.
    """
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    attention = torch.nn.functional.scaled_dot_product_attention

    def library_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **kwargs: Any) -> torch.Tensor:
        return attention(q, k, v, enable_gqa=grouped, **kwargs)

    if backend is None:
        return library_attention
    chosen = getattr(SDPBackend, SDPA_BACKENDS[backend])

    def library_attention_backend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **kwargs: Any) -> torch.Tensor:
        try:
            with sdpa_kernel(chosen):
                return attention(q, k, v, enable_gqa=grouped, **kwargs)
        except RuntimeError as error:
            if isinstance(error, torch.cuda.OutOfMemoryError) or not _accepts_nothing(error):
                raise
        with warnings.catch_warnings(record=True) as said, sdpa_kernel(chosen):
            warnings.simplefilter("always")
            try:
                return attention(q, k, v, enable_gqa=grouped, **kwargs)
            except RuntimeError as error:
                why = why_not(backend, q.device.type, [str(warning.message) for warning in said])
                raise RivalUnavailableError(f"sdpa:{backend} cannot run this problem: {why}") from error

    return library_attention_backend


def why_not(backend: str, device: str, said: list[str]) -> str:
    """Why SDPA's `backend` refused a call on `device`, from the warnings that torch gave with the refusal."""
    if device == "cpu":
        if backend in ("cudnn", "efficient"):
            return f"the {backend} backend runs on a GPU only, and the arguments are on the CPU"
        return "torch's CPU library refuses these arguments"
    # Torch goes through all its kernels, each under a headline, whichever of them was asked for.
    reasons, ours = [], False
    for words in said:
        if " not used because" in words:
            ours = words.startswith(_HEADLINES[backend])
        elif ours:
            reasons.append(words.split(" (Triggered internally", 1)[0].strip())
    return "; ".join(reasons) or "torch gives no reason"


_HEADLINES = {"flash": "Flash attention", "cudnn": "cuDNN attention", "efficient": "Memory efficient", "math": "Math"}


def _accepts_nothing(error: RuntimeError) -> bool:
    """Whether SDPA failed because the one backend it may use refuses the arguments, and not in a kernel."""
    return "No available kernel" in str(error) or "No viable backend" in str(error)
