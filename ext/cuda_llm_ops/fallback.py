"""Attention with a way out where device memory runs short."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

from .ops import flash_attention


class FlashFallbackWarning(RuntimeWarning):
    """`safe_flash_attention` ran out of memory and called scaled_dot_product_attention instead."""


# Shown every time, not once a place as Python does by default. The user's own filters come first.
warnings.simplefilter("always", FlashFallbackWarning, append=True)


def safe_flash_attention(
    q: Tensor, k: Tensor, v: Tensor, is_causal: bool = False, *, scale: float | None = None
) -> Tensor:
    """Call `flash_attention`, or torch's scaled_dot_product_attention where the first runs out of memory.

    Each fallback gives a FlashFallbackWarning with the sizes. Arguments, result and errors are `flash_attention`'s.
    A torch.OutOfMemoryError of the fallback is raised as it is.
    """
    try:
        return flash_attention(q, k, v, is_causal, scale=scale)
    except torch.OutOfMemoryError as error:
        why = (str(error).splitlines() or ["no reason given"])[0]
    # Outside of the handler, which would keep alive what the failed call had allocated.
    warnings.warn(
        f"flash_attention of q {tuple(q.shape)} and k {tuple(k.shape)} ran out of memory ({why}); "
        "scaled_dot_product_attention is called instead",
        FlashFallbackWarning,
        stacklevel=2,
    )
    grouped = q.shape[1] != k.shape[1]
    return torch.nn.functional.scaled_dot_product_attention(
        q, k, v, is_causal=is_causal, scale=scale, enable_gqa=grouped
    )
