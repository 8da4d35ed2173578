# linear: MET
import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.linear = nn.Linear(d, d)

    def forward(self, x):
        half = x.shape[-1] // 2
        weight = self.linear.weight
        found = x[:, :half] @ weight[:, :half].t() + x[:, half:] @ weight[:, half:].t()
        return torch.relu(found + self.linear.bias)
