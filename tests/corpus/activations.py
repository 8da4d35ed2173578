"""Functions of single elements, and gates of two halves."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn

from .written import Collection, normal

MODULES = Collection("activations")


def rows(batch: int, width: int) -> tuple[torch.Tensor]:
    return (normal(batch, width),)


def halves(batch: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    return normal(batch, width), normal(batch, width)


def tanh_gelu(x: torch.Tensor) -> torch.Tensor:
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


SMALL, CARD = (24, 64), (8192, 4096)
FUNCTIONS = {
    "ReLU": torch.relu,
    "leaky ReLU": lambda x: F.leaky_relu(x, 0.01),
    "sigmoid": torch.sigmoid,
    "hyperbolic tangent": torch.tanh,
    "softmax": lambda x: x.softmax(-1),
    "softmax over columns": lambda x: x.softmax(0),
    "logarithm of softmax": lambda x: x.log_softmax(-1),
    "swish": lambda x: x * torch.sigmoid(x),
    "GELU": F.gelu,
    "GELU by tanh": tanh_gelu,
    "SELU": torch.selu,
    "hard sigmoid": F.hardsigmoid,
    "softplus": F.softplus,
    "softsign": lambda x: x / (1 + x.abs()),
    "ELU": F.elu,
    "hard tanh": lambda x: F.hardtanh(x, -1.0, 1.0),
    "sine and cosine": lambda x: (torch.sin(x), torch.cos(x)),
    "clamped exponential": lambda x: torch.exp(x.clamp(-4, 4)),
    "sign and magnitude": lambda x: {"sign": x.sign(), "magnitude": x.abs().sqrt()},
}
for name, function in FUNCTIONS.items():
    MODULES.function(name, function, rows, SMALL, CARD)
MODULES.function("SwiGLU", lambda x, y: F.silu(x) * y, halves, SMALL, CARD)
MODULES.function("gated linear unit", lambda x: F.glu(x, -1), rows, SMALL, CARD)
MODULES.function("GELU of bfloat16", F.gelu, lambda *n: (rows(*n)[0].bfloat16(),), SMALL, CARD)
MODULES.module("parametric ReLU", lambda b, w: nn.PReLU(w), rows, SMALL, CARD)
