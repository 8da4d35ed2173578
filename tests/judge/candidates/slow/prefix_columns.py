# prefix: MISSED
import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        sums, found = torch.zeros_like(x[:, 0]).double(), []
        for column in x.unbind(-1):
            sums = sums + column
            found.append(sums)
        return torch.stack(found, -1).float()
