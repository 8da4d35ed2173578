"""Finds out if a candidate is the library under another name, by the operators and GPU kernels that both sides run.

That is no fault, so it makes no verdict. But it explains a speed of 1.00.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from perfsuite.problems.base import Inputs

# Operators that move or name memory and compute nothing.
_NAMES = """_reshape_alias _to_copy _unsafe_view alias as_strided clone contiguous copy_ detach empty empty_like
    empty_strided expand fill_ new_empty permute reshape resize_ select slice split squeeze t transpose unbind unsqueeze
    view zero_ zeros zeros_like"""
_PLUMBING = frozenset(f"aten::{name}" for name in _NAMES.split())
# The start of the mangled names of kernels that every program on torch runs: fills, elementwise arithmetic.
_COMMON_KERNELS = ("_ZN2at6native",)
# The start of a kernel's name -> its library. A library chooses among hundreds of kernels by shape, layout and
# workspace, so two ways of calling it may run different ones.
_MAKERS = {
    "nvjet_": "cuBLAS",
    "_ZN8cublasLt": "cuBLAS",
    "_ZN6cublas": "cuBLAS",
    "sm80_xmma_gemm_": "cuBLAS",
    "sm90_xmma_gemm_": "cuBLAS",
    "cutlass_80_": "cuBLAS",
    "cudnn_generated_": "cuDNN",
    "_ZN5cudnn": "cuDNN",
    "_ZN13pytorch_flash": "PyTorch's FlashAttention",
    "fmha_cutlass": "PyTorch's memory-efficient attention",
}


def shared_operators(candidate: Callable[..., Any], rival: Callable[..., Any], inputs: Inputs) -> list[str]:
    """Operators of torch that compute and that both sides call on `inputs`, sorted."""
    return sorted((_operators(candidate, inputs) & _operators(rival, inputs)) - _PLUMBING)


def shared_kernels(mine: set[str], rivals: set[str]) -> list[str]:
    """Kernels that the candidate shares with the rival, sorted; mine, rivals: the full names of each side's kernels.

    If both launch no common kernel, the candidate's kernels from a library that the rival uses too, with its name.
    """
    both = sorted(name for name in mine & rivals if not name.startswith(_COMMON_KERNELS))
    if both:
        return both
    makers = {_maker(name) for name in rivals} - {None}
    return sorted(f"{name} ({_maker(name)})" for name in mine if _maker(name) in makers)


def _maker(kernel: str) -> str | None:
    return next((maker for start, maker in _MAKERS.items() if kernel.startswith(start)), None)


def _operators(function: Callable[..., Any], inputs: Inputs) -> set[str]:
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    called: set[str] = set()

    class Listener(TorchDispatchMode):
        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            # Without this, the first call imports torch's compiler, which takes three seconds.
            return False

        def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            called.add(str(operator.name()).partition(".")[0])
            return operator(*args, **(kwargs or {}))

    with torch.no_grad(), Listener():
        inputs.call(function)
    return called
