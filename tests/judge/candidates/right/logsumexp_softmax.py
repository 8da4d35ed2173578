# logsumexp: MET
import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        most, at = x.max(-1, keepdim=True)
        return (most - torch.log_softmax(x, -1).gather(-1, at)).squeeze(-1)
