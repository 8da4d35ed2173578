# gelu: MISSED
import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        wide = x.double()
        for _ in range(25):
            kept = 0.5 * wide * (1 + torch.erf(wide * 0.7071067811865476))
        return kept.float()
