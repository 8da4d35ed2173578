# softmax: WRONG
import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.softmax(x.clamp(-20, 20), -1)
