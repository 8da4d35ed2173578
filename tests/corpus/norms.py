"""Normalisation."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from .written import Collection, normal

MODULES = Collection("norms")
add = MODULES.function


def rows(batch: int, width: int) -> tuple[torch.Tensor]:
    return (normal(batch, width),)


def image(batch: int, channels: int, size: int) -> tuple[torch.Tensor]:
    return (normal(batch, channels, size, size),)


class RmsNorm(nn.Module):
    """x over its root mean square, times a weight; sums in float32."""

    def __init__(self, batch: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width) + 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)
        return (wide * scale).to(x.dtype) * self.weight.to(x.dtype)


class AddedNorm(RmsNorm):
    """The sum of two inputs, and its RMS norm."""

    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        total = x + residual
        return super().forward(total), total


ROWS, CARD_ROWS = (24, 64), (8192, 4096)
IMAGE, CARD_IMAGE = (3, 4, 8), (32, 64, 128)
MODULES.module("layer norm", lambda b, w: nn.LayerNorm(w), rows, ROWS, CARD_ROWS)
MODULES.module("RMS norm", RmsNorm, rows, ROWS, CARD_ROWS)
MODULES.module("RMS norm of bfloat16", RmsNorm, lambda *n: (rows(*n)[0].bfloat16(),), ROWS, CARD_ROWS)
MODULES.module("RMS norm of a sum", AddedNorm, lambda *n: rows(*n) + rows(*n), ROWS, CARD_ROWS)
MODULES.module("batch norm", lambda b, c, s: nn.BatchNorm2d(c), image, IMAGE, CARD_IMAGE)
MODULES.module("group norm", lambda b, c, s: nn.GroupNorm(2, c), image, IMAGE, CARD_IMAGE)
MODULES.module("instance norm", lambda b, c, s: nn.InstanceNorm2d(c, affine=True), image, IMAGE, CARD_IMAGE)
add("norm of L1", lambda x: x / x.abs().mean(-1, keepdim=True), rows, ROWS, CARD_ROWS)
add("norm of L2", lambda x: F.normalize(x, dim=-1), rows, ROWS, CARD_ROWS)
add("Frobenius norm", lambda x: x / torch.linalg.norm(x), rows, ROWS, CARD_ROWS)
add("standardised columns", lambda x: (x - x.mean(0)) / x.std(0), rows, ROWS, CARD_ROWS)
