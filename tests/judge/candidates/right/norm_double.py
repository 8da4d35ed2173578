# norm: MET
import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm = nn.LayerNorm(d)

    def forward(self, x):
        wide = x.double()
        found = (wide - wide.mean(-1, keepdim=True)) / (wide.var(-1, unbiased=False, keepdim=True) + self.norm.eps).sqrt()
        return (found * self.norm.weight + self.norm.bias).float()
