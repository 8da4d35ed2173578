"""Small kernels of the suite's own, compiled when they are needed: by NVRTC, through torch, without a compiler here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from perfsuite.outcome import UserError

Grid = tuple[int, int, int]
Kernel = Callable[[Grid, Grid, Sequence[Any]], None]
"""Blocks, threads, arguments: tensors as pointers, ints as 32-bit."""


class DeviceCodeError(UserError):
    """A kernel cannot be compiled here; the text says why and what is missing."""


def compiled(source: str, name: str) -> Kernel:
    """The kernel `name` of a CUDA source, for the current device. It runs on the current stream."""
    import torch

    # A private function: the only one of torch that compiles at run time without nvcc. It is there from 2.9 on.
    compiler = getattr(torch.cuda, "_compile_kernel", None)
    if compiler is None:
        raise DeviceCodeError(f"torch {torch.__version__} cannot compile device code at run time; 2.10 or newer can")
    try:
        kernel = compiler(source, name)
    except (RuntimeError, OSError, AttributeError) as error:
        first = (str(error).strip().splitlines() or ["no reason given"])[0]
        raise DeviceCodeError(
            f"the kernel {name} cannot be compiled: {first} (NVRTC comes with torch built for CUDA)"
        ) from error

    def launch(blocks: Grid, threads: Grid, arguments: Sequence[Any]) -> None:
        kernel(blocks, threads, tuple(arguments))

    return launch
