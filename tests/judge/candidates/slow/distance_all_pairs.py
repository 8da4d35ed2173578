# distance: MISSED
import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x, y):
        return (x.unsqueeze(1) - y.unsqueeze(0)).square().sum(-1).sqrt().diagonal()
