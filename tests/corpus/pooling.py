"""Pooling and resampling of images and sequences."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from .written import Collection, normal

MODULES = Collection("pooling")
add = MODULES.function
SMALL, CARD = (2, 4, 12), (16, 64, 256)


def images(b: int, c: int, n: int) -> tuple[torch.Tensor]:
    return (normal(b, c, n, n),)


def signals(b: int, c: int, n: int) -> tuple[torch.Tensor]:
    return (normal(b, c, n),)


def volumes(b: int, c: int, n: int) -> tuple[torch.Tensor]:
    return (normal(b, c, n, n, n),)


class Blurred(nn.Module):
    """A maximum over windows, then a fixed blur, as networks that keep shifts have."""

    def __init__(self, b: int, c: int, n: int) -> None:
        super().__init__()
        taps = torch.tensor([1.0, 2.0, 1.0]) / 4
        self.register_buffer("kernel", torch.outer(taps, taps).expand(c, 1, 3, 3).contiguous())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.conv2d(F.max_pool2d(x, 2, 1), self.kernel, stride=2, padding=1, groups=x.shape[1])


add("maximum of windows", lambda x: F.max_pool2d(x, 3, 2, 1), images, SMALL, CARD)
add("maximum and its places", lambda x: F.max_pool2d(x, 2, return_indices=True), images, SMALL, CARD)
add("mean of windows", lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False), images, SMALL, CARD)
add("maximum of a sequence", lambda x: F.max_pool1d(x, 4, 2), signals, (2, 4, 50), (64, 128, 4096))
add("mean of a sequence", lambda x: F.avg_pool1d(x, 5, 3, 2), signals, (2, 4, 50), (64, 128, 4096))
add("maximum of a volume", lambda x: F.max_pool3d(x, 2), volumes, (2, 2, 6), (8, 32, 64))
add("mean of a volume", lambda x: F.avg_pool3d(x, 2), volumes, (2, 2, 6), (8, 32, 64))
add("mean to a size", lambda x: F.adaptive_avg_pool2d(x, 5), images, SMALL, CARD)
add("global mean", lambda x: x.mean((-2, -1)), images, SMALL, CARD)
add("root of mean squares", lambda x: F.lp_pool2d(x, 2, 2), images, SMALL, CARD)
add("nearest enlargement", lambda x: F.interpolate(x, scale_factor=2), images, SMALL, (16, 32, 256))
add("linear enlargement", lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), images, SMALL, (16, 32, 256))
add("pixel shuffle", lambda x: F.pixel_shuffle(x, 2), images, SMALL, CARD)
MODULES.module("blurred maximum", Blurred, images, SMALL, CARD)
