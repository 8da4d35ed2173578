# rms: MET
import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return F.rms_norm(x, (x.shape[-1],), eps=1e-6)
