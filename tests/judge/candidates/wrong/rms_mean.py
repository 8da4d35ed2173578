# rms: WRONG inaccurate
import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x / x.abs().mean(-1, keepdim=True)
