# softmax: MISSED
import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        for _ in range(30):
            x = x.clone()
        return torch.softmax(x, -1)
