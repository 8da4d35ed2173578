# rms: MISSED
import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.stack([row * torch.rsqrt(row.square().mean() + 1e-6) for row in x])
