# linear: MISSED
import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.linear = nn.Linear(d, d)

    def forward(self, x):
        return torch.stack([torch.relu(self.linear(row)) for row in x])
