# rms: MET
import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt()
