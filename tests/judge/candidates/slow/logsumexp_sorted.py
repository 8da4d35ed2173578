# logsumexp: MISSED
import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        for _ in range(3):
            ordered = x.sort(-1).values
        return torch.logsumexp(ordered, -1)
