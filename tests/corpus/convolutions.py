"""Convolutions, plain, grouped, dilated and transposed, and what follows them in networks."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from .written import Collection, normal

MODULES = Collection("convolutions")
add = MODULES.module


def image(batch: int, channels: int, size: int) -> tuple[torch.Tensor]:
    return (normal(batch, channels, size, size),)


def signal(batch: int, channels: int, size: int) -> tuple[torch.Tensor]:
    return (normal(batch, channels, size),)


def volume(batch: int, channels: int, size: int) -> tuple[torch.Tensor]:
    return (normal(batch, channels, size, size, size),)


SMALL, CARD = (2, 4, 10), (16, 64, 128)
add("convolution of a signal", lambda b, c, s: nn.Conv1d(c, 2 * c, 3), signal, SMALL, (16, 64, 8192))
add("convolution of an image", lambda b, c, s: nn.Conv2d(c, 2 * c, 3, padding=1), image, SMALL, CARD)
add("convolution of a volume", lambda b, c, s: nn.Conv3d(c, c, 3), volume, (1, 3, 6), (4, 16, 48))
add("convolution with a stride", lambda b, c, s: nn.Conv2d(c, c, 5, stride=2, bias=False), image, SMALL, CARD)
add("dilated convolution", lambda b, c, s: nn.Conv2d(c, c, 3, dilation=2), image, SMALL, CARD)
add("grouped convolution", lambda b, c, s: nn.Conv2d(c, 2 * c, 3, groups=c // 2), image, SMALL, CARD)
add("depthwise convolution", lambda b, c, s: nn.Conv2d(c, c, 3, groups=c), image, SMALL, CARD)
add("pointwise convolution", lambda b, c, s: nn.Conv2d(c, 3 * c, 1), image, SMALL, CARD)
add("convolution of uneven kernel", lambda b, c, s: nn.Conv2d(c, c, (3, 5), padding=(1, 2)), image, SMALL, CARD)
add("transposed convolution", lambda b, c, s: nn.ConvTranspose2d(c, c, 3, stride=2), image, SMALL, (8, 64, 64))
add("transposed signal", lambda b, c, s: nn.ConvTranspose1d(c, c, 4, stride=2), signal, SMALL, (16, 64, 4096))
add(
    "convolution, ReLU and bias",
    lambda b, c, s: nn.Sequential(nn.Conv2d(c, c, 3), nn.ReLU(), nn.Conv2d(c, 1, 1)),
    image,
    SMALL,
    CARD,
)
add(
    "convolution and batch norm",
    lambda b, c, s: nn.Sequential(nn.Conv2d(c, c, 3), nn.BatchNorm2d(c), nn.Hardswish()),
    image,
    SMALL,
    CARD,
)
add("half convolution", lambda b, c, s: nn.Conv2d(c, c, 3).half(), lambda *n: (image(*n)[0].half(),), SMALL, CARD)
add(
    "convolution in channels last",
    lambda b, c, s: nn.Conv2d(c, c, 3).to(memory_format=torch.channels_last),
    lambda *n: (image(*n)[0].contiguous(memory_format=torch.channels_last),),
    SMALL,
    CARD,
)


class Residual(nn.Module):
    """Two convolutions with batch norms, added to their input."""

    def __init__(self, batch: int, channels: int, size: int) -> None:
        super().__init__()
        self.one = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.two = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(channels) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.norms[0](self.one(x)))
        return F.relu(self.norms[1](self.two(y)) + x)


class Squeeze(nn.Module):
    """Channels weighted by a small network over their means."""

    def __init__(self, batch: int, channels: int, size: int) -> None:
        super().__init__()
        self.gate = nn.Sequential(nn.Linear(channels, 2), nn.ReLU(), nn.Linear(2, channels), nn.Sigmoid())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.gate(x.mean((2, 3)))[:, :, None, None]


add("residual block", Residual, image, SMALL, (8, 64, 64))
add("squeeze and excitation", Squeeze, image, SMALL, CARD)
