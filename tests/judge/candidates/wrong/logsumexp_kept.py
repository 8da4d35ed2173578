# logsumexp: WRONG bad-shape
import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.logsumexp(x, -1, keepdim=True)
