# softmax: WRONG
import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.softmax(x.bfloat16(), -1).float()
