# distance: WRONG
import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x, y):
        return (x - y).clamp(-15, 15).square().sum(-1).sqrt()
