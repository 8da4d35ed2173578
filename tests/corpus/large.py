"""Calls with one argument of a twentieth of the card's memory: 7.5 GB on an H200, 4.3 GB on an H100."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from .written import Call, Given

SHARE = 20
WIDTH = 8192
SMALL = (48, 64)


def root(x: torch.Tensor) -> torch.Tensor:
    return x.square().add_(1).sqrt_()


def calls() -> list[Call]:
    """The calls. Without a card they are small."""
    found = [
        ("relu", torch.float32, F.relu, torch.relu),
        ("softmax", torch.bfloat16, lambda x: F.softmax(x, dim=-1), lambda x: x.softmax(-1)),
        ("sum of rows", torch.float32, lambda x: torch.sum(x, dim=-1), lambda x: x.sum(-1)),
        ("root of a square and one", torch.float32, root, lambda x: (x * x + 1).sqrt()),
    ]
    card = torch.cuda.get_device_properties(0).total_memory if torch.cuda.is_available() else 0
    size = f" of {card / SHARE / 1e9:.1f} GB" if card else ""
    return [
        Call(
            name + size,
            "large",
            lambda n, d, dtype=dtype, mine=mine, theirs=theirs: Given(mine, theirs, (torch.randn(n, d, dtype=dtype),)),
            SMALL,
            (card // SHARE // dtype.itemsize // WIDTH, WIDTH),
        )
        for name, dtype, mine, theirs in found
    ]
