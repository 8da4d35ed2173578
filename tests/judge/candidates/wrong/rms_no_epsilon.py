# rms: WRONG
import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True))
