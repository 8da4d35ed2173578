# norm: WRONG inaccurate
import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm = nn.LayerNorm(d)

    def forward(self, x):
        centred = x - x.mean(-1, keepdim=True)
        return centred / x.std(-1, keepdim=True) * self.norm.weight + self.norm.bias
