# distance: MISSED
import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x, y):
        return torch.stack([(one - other).square().sum().sqrt() for one, other in zip(x, y)])
