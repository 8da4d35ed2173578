"""Attention and GEMM kernels for NVIDIA GPUs from Ampere on, with portable ones for the CPU behind the same operators.

Importing it registers `torch.ops.cuda_llm_ops.*`. It raises ImportError, with the command that builds the extension,
where the install left the extension out.
"""

from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from ._loading import load as _load

_load()

from . import autocast as autocast  # noqa: E402  registers what the operators do under torch.autocast
from . import fakes as fakes  # noqa: E402  registers the fake kernels
from . import fakes_options as fakes_options  # noqa: E402  and the rest of them
from .build import BuildInfo, KernelAttributes, build_info, kernel_attributes, warn_if_degraded  # noqa: E402
from .fallback import FlashFallbackWarning, safe_flash_attention  # noqa: E402
from .memory_pool import AttentionBuffers, AttentionMemoryPool  # noqa: E402
from .ops import flash_attention, flash_decode, gemm, naive_attention, tensor_core_gemm, tiled_attention  # noqa: E402
from .planning import estimate_attention_memory, find_optimal_batch_size, pad_to_alignment  # noqa: E402
from .profiler import CUDAProfiler  # noqa: E402
from .varlen import flash_attention_varlen  # noqa: E402

if _TYPE_CHECKING:
    from .fp8 import fp8_gemm, fp8_grouped_gemm, quantize_fp8, rms_norm_fp8, swiglu_fp8
    from .weight_layouts import from_awq, from_gptq
    from .weight_only import pack_int4, pack_int8, weight_only_gemm

warn_if_degraded()

optimal_attention = flash_attention
"""The fastest attention kernel: `flash_attention` is at every length that was measured, on the H200 and on the CPU."""

__all__ = [
    "AttentionBuffers",
    "AttentionMemoryPool",
    "BuildInfo",
    "CUDAProfiler",
    "FlashFallbackWarning",
    "KernelAttributes",
    "build_info",
    "estimate_attention_memory",
    "find_optimal_batch_size",
    "flash_attention",
    "flash_attention_varlen",
    "flash_decode",
    "fp8_gemm",
    "fp8_grouped_gemm",
    "from_awq",
    "from_gptq",
    "gemm",
    "kernel_attributes",
    "naive_attention",
    "optimal_attention",
    "pack_int4",
    "pack_int8",
    "pad_to_alignment",
    "quantize_fp8",
    "rms_norm_fp8",
    "safe_flash_attention",
    "swiglu_fp8",
    "tensor_core_gemm",
    "tiled_attention",
    "weight_only_gemm",
]


_LATER = {
    "fp8": ("fp8_gemm", "fp8_grouped_gemm", "quantize_fp8", "rms_norm_fp8", "swiglu_fp8"),
    "weight_layouts": ("from_awq", "from_gptq"),
    "weight_only": ("pack_int4", "pack_int8", "weight_only_gemm"),
}


def __getattr__(name: str) -> _Any:
    """The FP8 and weight-only operators, whose Python faces are imported on first use."""
    for file, names in _LATER.items():
        if name == file or name in names:
            from importlib import import_module

            module = import_module(f".{file}", __name__)
            return module if name == file else getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
