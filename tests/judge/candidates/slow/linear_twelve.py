# linear: MISSED
import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.linear = nn.Linear(d, d)

    def forward(self, x):
        for _ in range(12):
            kept = torch.relu(self.linear(x))
        return kept
