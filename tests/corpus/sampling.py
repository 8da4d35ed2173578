"""Dropout, noise and draws from distributions: kernels that take random numbers."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from .written import Collection, normal

MODULES = Collection("sampling")
add = MODULES.function


def rows(n: int, d: int) -> tuple[torch.Tensor]:
    return (normal(n, d),)


class Dropped(nn.Module):
    """A linear layer with dropout that stays on."""

    def __init__(self, n: int, d: int) -> None:
        super().__init__()
        self.linear = nn.Linear(d, d)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.dropout(self.linear(x), 0.2, training=True)


class Encoded(nn.Module):
    """A mean and a deviation, and a draw from the normal distribution that they give."""

    def __init__(self, n: int, d: int) -> None:
        super().__init__()
        self.mean, self.spread = nn.Linear(d, d), nn.Linear(d, d)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.mean(x) + torch.exp(0.5 * self.spread(x)) * torch.randn_like(x)


add("dropout", lambda x: F.dropout(x, 0.3), rows, (24, 40), (8192, 4096))
add(
    "dropout of channels",
    lambda x: F.dropout1d(x.sigmoid(), 0.3),
    lambda n, d: (normal(4, n, d),),
    (12, 40),
    (1024, 4096),
)
add("added noise", lambda x: x + 0.1 * torch.randn_like(x), rows, (24, 40), (8192, 4096))
add("coin for each element", lambda x: torch.bernoulli(x.sigmoid()), rows, (24, 40), (8192, 4096))
add("random leaks", lambda x: F.rrelu(x, training=True), rows, (24, 40), (8192, 4096))
MODULES.module("linear and dropout", Dropped, rows, (24, 40), (4096, 1024))
MODULES.module("draw around a mean", Encoded, rows, (24, 40), (4096, 1024))
