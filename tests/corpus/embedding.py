"""Look-ups by index: embeddings, gathers, scatters and rotary positions."""

from __future__ import annotations

import torch
from torch import nn

from .written import Collection, normal, whole

MODULES = Collection("embedding")
add = MODULES.function


class Tokens(nn.Module):
    """Token and position embeddings with a norm, as at the start of a language model."""

    def __init__(self, batch: int, length: int, words: int, width: int) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.places = nn.Parameter(torch.randn(length, width))
        self.norm = nn.LayerNorm(width)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.norm(self.words(ids) + self.places)


class Tied(nn.Module):
    """An embedding whose weights give the logits too."""

    def __init__(self, batch: int, words: int, width: int) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.words(ids)) @ self.words.weight.t()


class Rotary(nn.Module):
    """Rotates pairs of channels by an angle that grows with the position."""

    def __init__(self, batch: int, heads: int, length: int, width: int) -> None:
        super().__init__()
        angles = torch.outer(torch.arange(length), 10000.0 ** (-torch.arange(0, width, 2) / width))
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        even, odd = x[..., ::2], x[..., 1::2]
        return torch.stack([even * self.cos - odd * self.sin, even * self.sin + odd * self.cos], -1).flatten(-2)


def ids(batch: int, length: int, words: int, width: int) -> tuple[torch.Tensor]:
    return (whole(words, batch, length),)


MODULES.module("embedding", lambda b, n, w, d: nn.Embedding(w, d), ids, (4, 12, 50, 16), (64, 2048, 32000, 256))
MODULES.module("tokens and positions", Tokens, ids, (4, 12, 50, 16), (16, 2048, 32000, 512))
MODULES.module("tied logits", Tied, lambda b, w, d: (whole(w, b),), (12, 40, 16), (1024, 8192, 512))
MODULES.module("rotary positions", Rotary, lambda b, h, n, d: (normal(b, h, n, d),), (2, 2, 12, 16), (8, 32, 2048, 128))
MODULES.module(
    "bag of embeddings",
    lambda b, n, w, d: nn.EmbeddingBag(w, d, mode="mean"),
    ids,
    (6, 5, 50, 16),
    (8192, 32, 50000, 128),
)
MODULES.module(
    "half embedding",
    lambda b, n, w, d: nn.Embedding(w, d).bfloat16(),
    ids,
    (4, 12, 50, 16),
    (64, 2048, 32000, 256),
)
add("gather of rows", lambda x, i: x[i] * 2, lambda n, d: (normal(n, d), whole(n, 2 * n)), (40, 16), (65536, 256))
add(
    "gather along an axis",
    lambda x, i: torch.gather(x, 1, i),
    lambda n, d: (normal(n, d), whole(d, n, d // 2)),
    (24, 16),
    (8192, 2048),
)
add(
    "sum of rows by key",
    lambda x, i: torch.zeros(8, x.shape[1], device=x.device).index_add_(0, i, x),
    lambda n, d: (normal(n, d), whole(8, n)),
    (40, 16),
    (65536, 256),
)
add(
    "maximum of rows by key",
    lambda x, i: torch.zeros(8, x.shape[1], device=x.device).index_reduce_(0, i, x, "amax", include_self=False),
    lambda n, d: (normal(n, d), whole(8, n)),
    (40, 16),
    (65536, 256),
)
add("one-hot", lambda i: torch.nn.functional.one_hot(i, 32), lambda n: (whole(32, n),), (48,), (1 << 20,))
