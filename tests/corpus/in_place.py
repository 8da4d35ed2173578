"""Writes in place: into intermediate results and into memory that the module keeps."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from .written import Collection, normal, whole

MODULES = Collection("in place")
add = MODULES.function


def rows(n: int, d: int) -> tuple[torch.Tensor]:
    return (normal(n, d),)


class Cache(nn.Module):
    """Keeps keys of earlier positions, writes new ones behind them, and attends to all."""

    def __init__(self, n: int, d: int) -> None:
        super().__init__()
        self.register_buffer("keys", torch.randn(2 * n, d))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.keys[x.shape[0] :] = x
        return (x @ self.keys.t() * x.shape[1] ** -0.5).softmax(-1) @ self.keys


class Residual(nn.Module):
    """Adds to its own intermediate results."""

    def __init__(self, n: int, d: int) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(d, d), nn.Linear(d, d)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.one(x)
        y.relu_().add_(x)
        y += self.two(y)
        return y.mul_(0.5)


def halves(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    out[:, ::2] = x[:, ::2].exp()
    torch.mul(x[:, 1::2], 3.0, out=out[:, 1::2])
    return out


def band(x: torch.Tensor) -> torch.Tensor:
    y = x @ x.t()
    y.diagonal().fill_(1.0)
    y.tril_(3).triu_(-3)
    return y


def written_twice(x: torch.Tensor) -> torch.Tensor:
    y = torch.zeros_like(x)
    y.view(-1)[::3] = x.view(-1)[::3]
    y.t().add_(x.t(), alpha=2.0)
    return y


def pair(n: int, d: int) -> tuple[torch.Tensor, torch.Tensor]:
    return normal(n, d), normal(n, d)


def into(x: torch.Tensor, out: torch.Tensor) -> None:
    torch.softmax(x, -1, out=out)


def update(weights: torch.Tensor, moments: torch.Tensor, given: torch.Tensor) -> None:
    """A step of gradient descent with momentum."""
    moments.mul_(0.9).add_(given, alpha=0.1)
    weights.sub_(moments, alpha=0.01)


def norm_of_sum(x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
    residual.add_(x)
    return F.rms_norm(residual, residual.shape[-1:])


MODULES.module("cache of keys", Cache, rows, (12, 16), (2048, 128))
MODULES.module("residual", Residual, rows, (16, 40), (4096, 1024))
add("halves of a result", halves, rows, (24, 40), (8192, 4096))
add("band of a product", band, rows, (24, 16), (4096, 256))
add("views of one memory", written_twice, rows, (24, 40), (8192, 4096))
add("clamp and scale", lambda x: x.clone().clamp_(-1, 1).mul_(2).sub_(0.5), rows, (24, 40), (8192, 4096))
add("fill where masked", lambda x: x.masked_fill(x < 0, -1.0).tanh_(), rows, (24, 40), (8192, 4096))
add(
    "put rows",
    lambda x, i, v: x.clone().index_copy_(0, i, v),
    lambda n, d: (normal(n, d), torch.randperm(n)[: n // 2], normal(n // 2, d)),
    (24, 40),
    (16384, 1024),
)
add(
    "scatter sums",
    lambda x, i: torch.zeros_like(x).scatter_add_(1, i, x),
    lambda n, d: (normal(n, d), whole(d, n, d)),
    (24, 40),
    (4096, 1024),
)
add("running sums in place", lambda x: F.pad(x, (1, 0)).cumsum_(-1), rows, (24, 40), (4096, 4096))
add("addition to an argument", lambda x, y: x.add_(y), pair, (24, 40), (8192, 4096))
add("result into an argument", into, pair, (24, 40), (8192, 4096))
add("step of an optimiser", update, lambda n, d: (*pair(n, d), normal(n, d)), (24, 40), (8192, 4096))
add("norm of a written sum", norm_of_sum, pair, (24, 40), (8192, 4096))
