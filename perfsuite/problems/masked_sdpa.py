"""SDPA for masks without an option in torch: a diagonal counted from the bottom right, a sliding window.

    sdpa         for a lower-right causal mask, SDPA with torch's own bias (FlashAttention-2 on a GPU); for a window,
                 SDPA with the mask as a tensor, made before the clock runs
    sdpa:flash   torch's FlashAttention-2, which has windows, called directly; on a CPU the same as sdpa
    others       that backend, with the mask as a tensor

The mask tensor is added to the scores. It has the inputs' dtype, so that no backend converts it at every call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from perfsuite.problems.base import RivalUnavailableError

if TYPE_CHECKING:
    import torch

    from perfsuite.problems.families.attention import Attention


def masked_attention(problem: Attention, backend: str | None, attention: Callable[..., Any]) -> Callable[..., Any]:
    """A rival called as `f(q, k, v, **options)`, with the options that `problem.inputs` gives.

    attention: SDPA through `backend`, which takes the mask as a tensor. The rival raises RivalUnavailableError if the
    backend cannot run the arguments.
    """
    biases: dict[tuple[Any, Any], Any] = {}

    def library_attention(
        q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, scale: float | None = None, **mask: Any
    ) -> torch.Tensor:
        if backend == "flash" and q.device.type == "cuda":
            return _flash(problem, q, k, v, scale)
        key = (q.device, q.dtype)
        if key not in biases:
            biases[key] = _bias(problem, q, backend)
        return attention(q, k, v, attn_mask=biases[key], scale=scale)

    return library_attention


def _bias(problem: Attention, q: torch.Tensor, backend: str | None) -> Any:
    """The mask as SDPA's attn_mask."""
    import torch
    from torch.nn.attention.bias import causal_lower_right

    if backend is None and problem.causal and problem.window is None and problem.keys >= problem.seq_q:
        return causal_lower_right(problem.seq_q, problem.keys)
    queries, keys = (torch.arange(size, device=q.device) for size in (problem.seq_q, problem.keys))
    bias = torch.zeros(problem.seq_q, problem.keys, dtype=q.dtype, device=q.device)
    return bias.masked_fill_(~problem.visible(queries, keys), float("-inf"))


def _flash(problem: Attention, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float | None) -> torch.Tensor:
    import torch

    if not problem.bottom_right and problem.seq_q != problem.keys:
        raise RivalUnavailableError(
            "sdpa:flash cannot run this problem: FlashAttention-2 counts the diagonal from the bottom right alone"
        )
    left, right = problem.window or (-1, -1)
    try:
        out: torch.Tensor = torch.ops.aten._flash_attention_forward(
            *(tensor.transpose(1, 2) for tensor in (q, k, v)),
            *(None, None, problem.seq_q, problem.keys, 0.0, problem.causal, False),
            scale=problem.scaling if scale is None else scale,
            window_size_left=left if left >= 0 else None,
            window_size_right=0 if problem.causal else right if right >= 0 else None,
        )[0]
    except RuntimeError as error:
        if isinstance(error, torch.cuda.OutOfMemoryError):
            raise
        raise RivalUnavailableError(f"sdpa:flash cannot run this problem: {error}") from error
    return out.transpose(1, 2)
