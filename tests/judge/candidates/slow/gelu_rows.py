# gelu: MISSED
import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.stack([torch.nn.functional.gelu(row) for row in x])
