# gelu: MISSED
import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        found = [F.gelu(x) for _ in range(20)]
        return found[-1]
