# logsumexp: MET
import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.logsumexp(x.double(), -1).float()
