# prefix: MET
import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x.double().cumsum(-1).float()
