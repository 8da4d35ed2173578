# softmax: MET
import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        weights = (x - x.amax(-1, keepdim=True)).exp()
        return weights / weights.sum(-1, keepdim=True)
