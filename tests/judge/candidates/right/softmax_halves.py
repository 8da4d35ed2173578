# softmax: MET
import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.cat([F.softmax(part, -1) for part in x.chunk(2)])
