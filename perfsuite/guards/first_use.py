"""Takes torch through its first use of a card, which changes settings that are watched later."""

from __future__ import annotations

from functools import cache
from typing import Any


@cache
def settle(device: str) -> None:
    """Let torch decide what it decides at its first use of a card, before the settings are read and held to; once.

    Starting CUDA binds names of torch.cuda anew. The first choice of an attention backend puts cuDNN first in the order
    where the card and cuDNN's version ask for it. To undo that would slow the rival.
    """
    import torch

    if device != "cuda":
        return
    torch.cuda.init()
    choose: Any = getattr(torch, "_fused_sdp_choice", None)
    if choose is not None:
        some = torch.zeros(1, 1, 8, 64, dtype=torch.float16, device=device)
        choose(some, some, some)
