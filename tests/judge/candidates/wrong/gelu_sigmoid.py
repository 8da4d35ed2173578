# gelu: WRONG inaccurate
import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x * torch.sigmoid(1.702 * x)
