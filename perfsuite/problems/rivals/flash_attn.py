"""FlashAttention's own kernels as a rival: the package flash-attn-4, with kernels for Hopper that torch lacks.

torch's `sdpa:flash` is FlashAttention-2. perfsuite does not depend on the package: it is imported at the first call,
and then compiles a kernel for each kind of problem. Where the package is missing, kernels serve that it compiled
beforehand, on another machine (`flash_objects`). It counts the causal diagonal and windows from the bottom right.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as metadata_version
from typing import TYPE_CHECKING, Any

from perfsuite.problems import flash_objects
from perfsuite.problems.base import RivalUnavailableError

if TYPE_CHECKING:
    import torch

    from perfsuite.problems.families.attention import Attention

PACKAGE = "flash_attn.cute"
SERVES = ("attention",)
NAMES = ("flash-attn",)


def missing() -> str | None:
    """The reason why this machine lacks the rival, or None if it has it."""
    if _installed() or (why := flash_objects.missing()) is None:
        return None
    return why if flash_objects.asked_for() else f"there is no {PACKAGE} here (pip install flash-attn-4)"


def version() -> str | None:
    """That of the package, or of the kernels that it compiled beforehand; None without either."""
    with suppress(PackageNotFoundError):
        return metadata_version("flash-attn-4")
    return flash_objects.version()


def _installed() -> bool:
    with suppress(ImportError):
        return PACKAGE in sys.modules or importlib.util.find_spec(PACKAGE) is not None
    return False


def rival(problem: Attention, name: str) -> Callable[..., Any]:
    """FlashAttention, called as `f(q, k, v, **options)` with the options that `problem.inputs` gives.

    The function raises RivalUnavailableError if the package is missing or refuses the problem.
    """
    masked = mask_of(problem)

    def library_flash_attn(
        q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, scale: float | None = None, **mask: Any
    ) -> torch.Tensor:
        forward = _forward(problem, q)
        try:
            out = forward(*(tensor.transpose(1, 2) for tensor in (q, k, v)), softmax_scale=scale, **masked)
        except (AssertionError, NotImplementedError, ValueError) as error:
            raise RivalUnavailableError(f"flash-attn cannot run this problem: {error}") from error
        attended: torch.Tensor = out[0] if isinstance(out, tuple) else out
        return attended.transpose(1, 2)

    return library_flash_attn


def mask_of(problem: Attention) -> dict[str, Any]:
    """The package's options for the problem's mask; a causal window is one that ends at the diagonal."""
    if problem.window is None:
        return {"causal": problem.causal}
    left, right = (None if side < 0 else side for side in problem.window)
    return {"window_size": (left, 0 if problem.causal else right)}


def _forward(problem: Attention, q: torch.Tensor) -> Callable[..., Any]:
    def refuse(why: str) -> RivalUnavailableError:
        return RivalUnavailableError(f"flash-attn cannot run this problem: {why}")

    if not _runs_on(q.device):
        raise refuse("its kernels run on a GPU only, and the arguments are on the CPU")
    if (problem.causal or problem.window) and not problem.bottom_right and problem.seq_q != problem.keys:
        raise refuse("it counts the diagonal from the bottom right alone")
    if (why := missing()) is not None:
        raise refuse(why)
    if not _installed():
        return flash_objects.flash_attn_func
    try:
        found: Callable[..., Any] = importlib.import_module(PACKAGE).flash_attn_func
    except ImportError as error:
        raise refuse(f"{PACKAGE} cannot be imported: {error}") from error
    return found


def _runs_on(device: torch.device) -> bool:
    return device.type == "cuda"
