# softmax: WRONG
import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        weights = x.exp()
        return weights / weights.sum(-1, keepdim=True)
