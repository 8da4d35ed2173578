"""Finds out if a candidate is the library under another name, by the operators and GPU kernels that both sides run.

That is no fault, so it makes no verdict. But it explains a speed of 1.00.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from perfsuite.guards.settings import precisions_of_torch
from perfsuite.problems.base import Inputs
from perfsuite.problems.tensors import leaves_in

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


@dataclass(frozen=True)
class Ran:
    """The operators, settings and results of one call."""

    operators: frozenset[str]
    """Operators of torch."""
    precisions: Mapping[str, frozenset[str]]
    """Setting of precision, such as that of TF32 -> its values while the operators ran."""
    strides: Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]]
    """Path of a dense tensor in the result -> its shape and strides, of dimensions with more than one element."""


def shared_operators(mine: Ran, rivals: Ran) -> list[str]:
    """Operators of torch that compute and that both sides call, sorted."""
    return sorted((mine.operators & rivals.operators) - _PLUMBING)


def precisions_apart(mine: Ran, rivals: Ran) -> list[str]:
    """A sentence for each setting of precision that has other values in the rival's call than in the candidate's."""
    return [
        f"{name} is {_values(theirs)} in the rival's call, {_values(mine.precisions[name])} in the candidate's"
        for name, theirs in rivals.precisions.items()
        if theirs != mine.precisions[name]
    ]


def strides_apart(mine: Ran, rivals: Ran) -> list[str]:
    """A sentence for each tensor of the result that has the rival's shape, and other strides."""
    found = []
    for path, (shape, steps) in rivals.strides.items():
        if mine.strides.get(path, (shape, steps)) != (shape, steps) and mine.strides[path][0] == shape:
            sides = f"strides {steps} from the rival, {mine.strides[path][1]} from the candidate"
            found.append(f"the result{path} has {sides}")
    return found


def _strides_of(result: Any) -> dict[str, tuple[tuple[int, ...], tuple[int, ...]]]:
    import torch

    found = {}
    for path, leaf in leaves_in(result):
        if isinstance(leaf, torch.Tensor) and leaf.layout is torch.strided and leaf.numel():
            pairs = [(size, step) for size, step in zip(leaf.shape, leaf.stride(), strict=True) if size > 1]
            found[path] = tuple(size for size, _ in pairs), tuple(step for _, step in pairs)
    return found


def _values(found: frozenset[str]) -> str:
    return " and ".join(sorted(found))


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


def ran(function: Callable[..., Any], inputs: Inputs) -> Ran:
    """The operators of one call on `inputs`, and the settings of precision as they were then.

    A call without operators of torch has the settings from before it.
    """
    import torch

    called: set[str] = set()
    before = _precisions_now()
    precisions: dict[str, set[str]] = {name: set() for name in before}
    with ExitStack() as stack:
        if "torch._dynamo" in sys.modules:  # otherwise nothing is compiled; the compiler would compile the listener
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        stack.enter_context(torch.no_grad())
        stack.enter_context(_listener()(called, precisions))
        result = inputs.call(function)
    seen = {name: frozenset(values or {before[name]}) for name, values in precisions.items()}
    return Ran(frozenset(called), seen, _strides_of(result))


@lru_cache(maxsize=1)
def _listener() -> Any:
    """The class of the mode that notes operators and settings; torch is imported when it is first needed."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Listener(TorchDispatchMode):
        def __init__(self, called: set[str], precisions: Mapping[str, set[str]]) -> None:
            super().__init__()
            self.called, self.precisions = called, precisions

        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            # Without this, the first call imports torch's compiler, which takes three seconds.
            return False

        def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.called.add(str(operator.name()).partition(".")[0])
            for name, value in _precisions_now().items():
                self.precisions[name].add(value)
            return operator(*args, **(kwargs or {}))

    return Listener


def _precisions_now() -> dict[str, str]:
    return {setting.name: str(setting.read()) for setting in precisions_of_torch()}
