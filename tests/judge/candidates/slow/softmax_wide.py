# softmax: MISSED
import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        wide = x.double()
        for _ in range(8):
            kept = torch.softmax(wide, -1)
        return kept.float()
