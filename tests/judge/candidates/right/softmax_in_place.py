# softmax: MET
import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        weights = x - x.amax(-1, keepdim=True)
        weights.exp_()
        return weights.div_(weights.sum(-1, keepdim=True))
