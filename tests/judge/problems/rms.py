"""Rows divided by their root mean square."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(96, 384)]
