"""FlashAttention's own kernels as a rival: the package flash-attn-4, whose kernels for Hopper torch does not have.

torch's `sdpa:flash` is FlashAttention-2. The package is nobody's dependency here; it is imported at the first call, and
compiles a kernel for each kind of problem then. Its causal diagonal and its windows are counted from the bottom right.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .rivals import RivalUnavailableError

if TYPE_CHECKING:
    import torch

    from .attention import Attention

PACKAGE = "flash_attn.cute"


def missing() -> str | None:
    """Why this machine does not have the rival, or None where it does."""
    try:
        found = importlib.util.find_spec(PACKAGE)
    except ImportError:
        found = None
    return None if found else f"there is no {PACKAGE} here (pip install flash-attn-4)"


def flash_attn(problem: Attention) -> Callable[..., Any]:
    """A rival callable as `f(q, k, v, **options)` with the options that `problem.inputs` gives.

    The function raises RivalUnavailableError where there is no such package, and where it refuses the problem.
    """
    masked = _mask(problem)

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


def _mask(problem: Attention) -> dict[str, Any]:
    """Its options for the problem's mask; a causal window is one that ends at the diagonal."""
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
    try:
        found: Callable[..., Any] = importlib.import_module(PACKAGE).flash_attn_func
    except ImportError as error:
        raise refuse(f"{PACKAGE} cannot be imported: {error}") from error
    return found


def _runs_on(device: torch.device) -> bool:
    return device.type == "cuda"
