# prefix: MET
import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        blocks = x.view(x.shape[0], -1, 2) if x.shape[-1] % 2 == 0 else x.unsqueeze(-1)
        inner = blocks.double().cumsum(-1)
        before = inner[..., -1].cumsum(-1) - inner[..., -1]
        return (inner + before.unsqueeze(-1)).reshape(x.shape).to(x.dtype)
