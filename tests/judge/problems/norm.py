"""Layer normalisation with weight and bias."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, d: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(d)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(96, 256)]


def get_init_inputs() -> list[int]:
    return [256]
