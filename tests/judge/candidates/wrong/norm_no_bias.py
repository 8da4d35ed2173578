# norm: WRONG inaccurate
import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm = nn.LayerNorm(d)

    def forward(self, x):
        return F.layer_norm(x, (x.shape[-1],)) * 1.01
