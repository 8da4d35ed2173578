# softmax: MET
import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.log_softmax(x, -1).exp()
