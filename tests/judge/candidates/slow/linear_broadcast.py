# linear: MISSED
import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.linear = nn.Linear(d, d)

    def forward(self, x):
        found = (x.unsqueeze(1) * self.linear.weight).sum(-1) + self.linear.bias
        return torch.relu(found)
