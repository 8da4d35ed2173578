# distance: MET
import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x, y):
        return torch.linalg.vector_norm(x - y, dim=-1)
