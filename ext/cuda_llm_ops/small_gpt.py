"""A small GPT, and texts that only its attention can learn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

Attention = Callable[[Tensor, Tensor, Tensor], Tensor]
"""q, k, v -> the output of causal attention, each (batch, heads, tokens, head_dim)."""
PERIOD = 16
"""Tokens after which a text repeats."""


@dataclass(frozen=True)
class Sizes:
    """Of the model, and of a batch. Raises ValueError for sizes that do not fit."""

    layers: int = 4
    hidden: int = 512
    heads: int = 8
    vocabulary: int = 64
    tokens: int = 512
    batch: int = 16

    def __post_init__(self) -> None:
        if self.hidden % self.heads:
            raise ValueError(f"heads is {self.heads}; it must divide hidden, which is {self.hidden}")
        if self.tokens < 2 * PERIOD:
            raise ValueError(f"tokens is {self.tokens}; it must be at least {2 * PERIOD}, so that a text repeats")


class Block(nn.Module):
    """A pre-norm layer: attention, then a product of four times the hidden size with GELU."""

    def __init__(self, sizes: Sizes, attention: Attention) -> None:
        super().__init__()
        self.heads, self.attention = sizes.heads, attention
        self.norm_1, self.norm_2 = nn.LayerNorm(sizes.hidden), nn.LayerNorm(sizes.hidden)
        self.qkv, self.out = nn.Linear(sizes.hidden, 3 * sizes.hidden), nn.Linear(sizes.hidden, sizes.hidden)
        self.up, self.down = nn.Linear(sizes.hidden, 4 * sizes.hidden), nn.Linear(4 * sizes.hidden, sizes.hidden)

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, hidden = x.shape
        parts = self.qkv(self.norm_1(x)).view(batch, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        x = x + self.out(self.attention(*parts.unbind(0)).transpose(1, 2).reshape(batch, tokens, hidden))
        wide: Tensor = self.down(functional.gelu(self.up(self.norm_2(x))))
        return x + wide


class SmallGPT(nn.Module):
    """Token and position embeddings, `layers` blocks, a norm and a product with the token embeddings."""

    def __init__(self, sizes: Sizes, attention: Attention) -> None:
        super().__init__()
        self.embedding = nn.Embedding(sizes.vocabulary, sizes.hidden)
        self.position = nn.Embedding(sizes.tokens, sizes.hidden)
        self.blocks = nn.ModuleList(Block(sizes, attention) for _ in range(sizes.layers))
        self.norm = nn.LayerNorm(sizes.hidden)
        for one in self.modules():
            if isinstance(one, (nn.Linear, nn.Embedding)):
                nn.init.normal_(one.weight, std=0.02)
            if isinstance(one, nn.Linear):
                nn.init.zeros_(one.bias)

    def forward(self, text: Tensor) -> Tensor:
        """text: (batch, tokens + 1) token numbers. Returns the mean loss of every next token, a float32 scalar."""
        given, wanted = text[:, :-1], text[:, 1:]
        x = self.embedding(given) + self.position.weight
        for block in self.blocks:
            x = block(x)
        logits = functional.linear(self.norm(x), self.embedding.weight)
        loss: Tensor = functional.cross_entropy(logits.flatten(0, 1).float(), wanted.flatten())
        return loss


class Repeated:
    """Texts that repeat their first PERIOD tokens, which nothing else foretells: only attention can learn them."""

    def __init__(self, sizes: Sizes, seed: int, device: str) -> None:
        self.sizes, self.device = sizes, device
        self.generator = torch.Generator(device).manual_seed(seed)

    def batch(self) -> Tensor:
        """(batch, tokens + 1) token numbers, others at every call."""
        sizes = self.sizes
        shape = (sizes.batch, PERIOD)
        once = torch.randint(sizes.vocabulary, shape, generator=self.generator, device=self.device)
        return once.repeat(1, sizes.tokens // PERIOD + 1)[:, : sizes.tokens + 1]
