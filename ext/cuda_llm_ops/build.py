"""What the extension was built from and with, and what its kernels need of the device."""

from __future__ import annotations

import warnings
from typing import TypedDict, cast

import torch

from . import _C
from ._loading import PROJECT, build_command
from ._sources import digest


class BuildInfo(TypedDict):
    """The facts of a build; `None` where one is unknown or does not apply."""

    flavour: str  # "cuda" or "portable" (CPU kernels alone)
    architectures: list[str]  # machine code (sm_*) and PTX (compute_*) in the module
    reason: str  # why this flavour
    degraded: bool  # CUDA was to be expected, since torch has it, and could not be built
    cxx: str  # compiler and version
    nvcc: str | None
    torch: str  # at build time; a later one is fine, through the stable ABI
    commit: str | None
    dirty: bool | None  # the extension's files differed from the commit
    sources: str  # digest of the sources of this flavour
    stale: bool | None  # the checkout's sources have changed since; None for an installed copy


class KernelAttributes(TypedDict):
    """A kernel's resources as the driver reports them for the current device."""

    family: str
    name: str
    registers: int  # a thread
    static_shared: int  # bytes a block
    dynamic_shared: int  # bytes a block that a launch asks for; 0 where it varies
    local: int  # bytes a thread: spills and stack
    max_threads: int  # a block


def build_info() -> BuildInfo:
    """The facts of the build that is loaded, read from the compiled module itself."""
    facts = _C.build_info()
    csrc = PROJECT / "csrc"
    stale = digest(csrc, facts["flavour"]) != facts["sources"] if csrc.is_dir() else None
    return cast(BuildInfo, {**facts, "stale": stale})


def kernel_attributes() -> list[KernelAttributes]:
    """Registers, shared and local memory of every CUDA kernel on the current device; empty in the portable flavour."""
    return cast(list[KernelAttributes], _C.kernel_attributes())


def warn_if_degraded() -> None:
    """Warn at import if the CUDA kernels are missing though torch has CUDA, now or when they were built.

    pip hides the output of a build that succeeds, and its cache may hold a build that was made beside another torch.
    """
    facts = _C.build_info()
    if facts["flavour"] == "cuda" or facts["reason"].endswith("asked for it"):
        return
    if facts["degraded"] or torch.version.cuda is not None:
        warnings.warn(
            f"cuda_llm_ops was built without CUDA: {facts['reason']}. Rebuild it with: "
            f"CUDA_LLM_OPS_BUILD=cuda {build_command()}",
            stacklevel=3,
        )
