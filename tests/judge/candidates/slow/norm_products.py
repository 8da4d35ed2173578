# norm: MISSED
import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm = nn.LayerNorm(d)

    def forward(self, x):
        d = x.shape[-1]
        ones, wide = torch.ones(d, d, dtype=torch.float64) / d, x.double()
        for _ in range(3):
            centred = wide - wide @ ones
        scale = torch.rsqrt((centred * centred) @ ones + self.norm.eps)
        return (centred * scale * self.norm.weight + self.norm.bias).float()
