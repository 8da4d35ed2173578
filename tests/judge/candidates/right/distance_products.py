# distance: MET
import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x, y):
        apart = x - y
        return torch.einsum('ij,ij->i', apart, apart).sqrt()
