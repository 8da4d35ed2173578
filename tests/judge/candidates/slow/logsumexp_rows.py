# logsumexp: MISSED
import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.stack([torch.logsumexp(row, -1) for row in x])
