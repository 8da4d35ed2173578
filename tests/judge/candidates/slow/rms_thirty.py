# rms: MISSED
import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        for _ in range(12):
            kept = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)
        return kept
