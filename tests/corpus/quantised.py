"""Narrow numbers: quantisers, products of 8 and 4 bits, and their inverses."""

from __future__ import annotations

import torch
from torch import nn

from .written import Collection, normal, whole

MODULES = Collection("quantised")
add = MODULES.function


def rows(n: int, d: int) -> tuple[torch.Tensor]:
    return (normal(n, d),)


def to_int8(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    scale = x.abs().amax(-1, keepdim=True) / 127
    return (x / scale).round().clamp(-127, 127).to(torch.int8), scale


def to_float8(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    scale = x.abs().amax(-1, keepdim=True) / 448
    return (x / scale).to(torch.float8_e4m3fn), scale


def pack(x: torch.Tensor) -> torch.Tensor:
    codes = (x / x.abs().amax(-1, keepdim=True) * 7).round().to(torch.int8) + 8
    return (codes[..., ::2] | (codes[..., 1::2] << 4)).to(torch.uint8)


def unpack(codes: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    values = torch.stack([codes & 15, codes >> 4], -1).flatten(-2).float() - 8
    return values * scale


class Weights8(nn.Module):
    """A linear layer whose weights have 8 bits and one scale for each output."""

    def __init__(self, n: int, d: int) -> None:
        super().__init__()
        codes, scale = to_int8(torch.randn(d, d))
        self.register_buffer("codes", codes)
        self.register_buffer("scale", scale[:, 0] / d**0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x @ self.codes.to(x.dtype).t()) * self.scale.to(x.dtype)


class Weights4(nn.Module):
    """A linear layer whose weights have 4 bits, two in a byte."""

    def __init__(self, n: int, d: int) -> None:
        super().__init__()
        self.register_buffer("codes", torch.randint(256, (d, d // 2), dtype=torch.uint8))
        self.register_buffer("scale", torch.rand(d, 1) / d**0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ unpack(self.codes, self.scale).to(x.dtype).t()


add("quantise to int8", to_int8, rows, (24, 40), (8192, 4096))
add("quantise to float8", to_float8, rows, (24, 40), (8192, 4096))
add("pack 4 bits", pack, rows, (24, 40), (8192, 4096))
add(
    "unpack 4 bits",
    unpack,
    lambda n, d: (whole(256, n, d // 2).to(torch.uint8), torch.rand(n, 1)),
    (24, 40),
    (8192, 8192),
)
add(
    "integers times scales",
    lambda codes, scale: codes.float() * scale,
    lambda n, d: (whole(255, n, d).sub(127).to(torch.int8), torch.rand(n, 1)),
    (24, 40),
    (8192, 8192),
)
add(
    "product of integers",
    lambda a, b: (a.float() @ b.float()).to(torch.int32),
    lambda n, d: (whole(16, n, d).to(torch.int8), whole(16, d, n).to(torch.int8)),
    (24, 40),
    (1024, 1024),
)
add("rounded and back", lambda x: (x * 16).round() / 16, rows, (24, 40), (8192, 4096))
add("float8 and back", lambda x: x.to(torch.float8_e5m2).to(torch.float32) * 2, rows, (24, 40), (8192, 4096))
add("thresholds", lambda x: x.softmax(-1) > 0.02, rows, (24, 40), (8192, 4096))
MODULES.module("weights of 8 bits", Weights8, rows, (16, 40), (2048, 2048))
MODULES.module("weights of 4 bits", Weights4, rows, (16, 40), (2048, 2048))
