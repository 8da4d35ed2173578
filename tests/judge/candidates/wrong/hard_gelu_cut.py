# gelu: WRONG
import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.where(x.abs() < 5.5, F.gelu(x), torch.zeros_like(x))
