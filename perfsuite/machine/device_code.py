"""Compiles small CUDA kernels at run time: by NVRTC, through torch, without a compiler on this machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from perfsuite.outcome import UserError

Grid = tuple[int, int, int]
Kernel = Callable[[Grid, Grid, tuple[Any, ...]], None]
"""Called with blocks, threads and arguments: tensors as pointers, ints as 32-bit."""


class DeviceCodeError(UserError):
    """A kernel cannot be compiled here; the text gives the cause and what is missing."""


def compiled(source: str, name: str) -> Kernel:
    """The kernel `name` of a CUDA source, for the current device. It runs on the current stream."""
    import torch

    # A private function, in torch from 2.9 on. No other function of torch compiles at run time without nvcc.
    compiler = getattr(torch.cuda, "_compile_kernel", None)
    if compiler is None:
        raise DeviceCodeError(f"torch {torch.__version__} cannot compile device code at run time; 2.10 or newer can")
    try:
        kernel: Kernel = compiler(source, name)
    except (RuntimeError, OSError, AttributeError) as error:
        first = (str(error).strip().splitlines() or ["no reason given"])[0]
        raise DeviceCodeError(
            f"the kernel {name} cannot be compiled: {first} (NVRTC comes with torch built for CUDA)"
        ) from error
    return kernel
