"""Attention, in parts and whole."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn

from .written import Collection, normal

MODULES = Collection("attention")
add = MODULES.function


def heads(batch: int, count: int, length: int, width: int) -> tuple[torch.Tensor, ...]:
    return tuple(normal(batch, count, length, width) for _ in range(3))


def grouped(batch: int, count: int, length: int, width: int) -> tuple[torch.Tensor, ...]:
    shape = (batch, max(1, count // 2), length, width)
    return normal(batch, count, length, width), normal(*shape), normal(*shape)


def plain(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    weights = (q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])).softmax(-1)
    return weights @ v


def causal(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    length = q.shape[-2]
    hidden = torch.triu(torch.ones(length, length, dtype=torch.bool, device=q.device), 1)
    return scores.masked_fill(hidden, -torch.inf).softmax(-1) @ v


def linear(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    q, k = F.elu(q) + 1, F.elu(k) + 1
    return q @ (k.transpose(-1, -2) @ v) / (q @ k.sum(-2).unsqueeze(-1))


def with_logarithms(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    return scores.softmax(-1) @ v, scores.logsumexp(-1)


def rotary(x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
    one, two = x.chunk(2, -1)
    return x * cosine + torch.cat([-two, one], -1) * sine


def angles(batch: int, count: int, length: int, width: int) -> tuple[torch.Tensor, ...]:
    turn = torch.outer(torch.arange(length).float(), 1e4 ** (-torch.arange(0, width, 2) / width)).repeat(1, 2)
    return normal(batch, count, length, width), turn.cos(), turn.sin()


class SelfAttention(nn.Module):
    """Causal self-attention with its projections."""

    def __init__(self, batch: int, length: int, width: int) -> None:
        super().__init__()
        self.into, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (part.unflatten(-1, (4, -1)).transpose(1, 2) for part in self.into(x).chunk(3, -1))
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(attended.transpose(1, 2).flatten(-2))


class Block(nn.Module):
    """A layer of a transformer: attention and perceptron, each behind a norm and added."""

    def __init__(self, batch: int, length: int, width: int) -> None:
        super().__init__()
        self.attention = SelfAttention(batch, length, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.perceptron = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norms[0](x))
        return x + self.perceptron(self.norms[1](x))


SMALL, CARD = (2, 2, 24, 8), (4, 16, 1024, 64)
add("attention in parts", plain, heads, SMALL, CARD)
add("causal attention in parts", causal, heads, SMALL, CARD)
add("linear attention", linear, heads, SMALL, CARD)
add("attention with logarithms", with_logarithms, heads, SMALL, CARD)
add("fused attention", F.scaled_dot_product_attention, heads, SMALL, CARD)
add("rotary embedding", rotary, angles, SMALL, (8, 32, 2048, 128))
add(
    "fused causal attention of bfloat16",
    lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
    lambda *n: tuple(one.bfloat16() for one in heads(*n)),
    SMALL,
    CARD,
)
add(
    "grouped queries",
    lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True),
    grouped,
    SMALL,
    CARD,
)


def sequence(batch: int, length: int, width: int) -> tuple[torch.Tensor]:
    return (normal(batch, length, width),)


MODULES.module("self-attention", SelfAttention, sequence, (2, 12, 16), (8, 1024, 512))
MODULES.module("layer of a transformer", Block, sequence, (2, 12, 16), (8, 512, 512))
MODULES.module(
    "multi-head attention of torch",
    lambda b, n, w: Attended(w),
    sequence,
    (2, 12, 16),
    (8, 1024, 512),
)


class Attended(nn.Module):
    """torch's own module, which returns its weights too."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = nn.MultiheadAttention(width, 4, batch_first=True)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.inner(x, x, x)
