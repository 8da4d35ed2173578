# prefix: WRONG
import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x.clamp(-10, 10).cumsum(-1)
