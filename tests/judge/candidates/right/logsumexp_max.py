# logsumexp: MET
import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        most = x.amax(-1, keepdim=True)
        return (x - most).exp().sum(-1).log() + most.squeeze(-1)
