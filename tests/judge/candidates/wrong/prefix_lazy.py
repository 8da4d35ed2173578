# prefix: WRONG
import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        found = torch.empty_like(x)
        found[:-1] = torch.cumsum(x[:-1], -1)
        return found
