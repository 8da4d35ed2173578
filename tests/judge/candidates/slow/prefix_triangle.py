# prefix: MISSED
import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        d = x.shape[-1]
        for _ in range(3):
            kept = (x.double() @ torch.ones(d, d, dtype=torch.float64).triu()).float()
        return kept
