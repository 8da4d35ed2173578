# logsumexp: WRONG
import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x.exp().sum(-1).log()
