"""Gradients, written by hand or by autograd."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

from .written import Collection, normal, whole

MODULES = Collection("backward")
add = MODULES.function


def rows(n: int, d: int) -> tuple[torch.Tensor]:
    return (normal(n, d),)


def pair(n: int, d: int) -> tuple[torch.Tensor, torch.Tensor]:
    return normal(n, d), normal(n, d)


def gradient(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """The gradient of `function` by its first argument, for a gradient of the result that comes last."""

    def backward(x: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            return torch.autograd.grad(function(x, *rest[:-1]), x, rest[-1])[0]

    return backward


def softmax_gradient(weights: torch.Tensor, given: torch.Tensor) -> torch.Tensor:
    weights = weights.softmax(-1)
    return weights * (given - (given * weights).sum(-1, keepdim=True))


def norm_gradient(x: torch.Tensor, given: torch.Tensor) -> torch.Tensor:
    scale = (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt()
    unit = x * scale
    return scale * (given - unit * (given * unit).mean(-1, keepdim=True))


def loss_gradient(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return (logits.softmax(-1) - F.one_hot(target, logits.shape[-1])) / len(logits)


class Layer(nn.Module):
    """Gradients of a linear layer's parameters, for a squared loss."""

    def __init__(self, n: int, d: int) -> None:
        super().__init__()
        self.layer = nn.Linear(d, d)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        with torch.enable_grad():
            return torch.autograd.grad(self.layer(x).square().mean(), tuple(self.layer.parameters()))


class Scale(torch.autograd.Function):
    """A product with a gradient of its own."""

    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x, scale)
        return x * scale

    @staticmethod
    def backward(ctx, given):
        x, scale = ctx.saved_tensors
        return given * scale, (given * x).sum(0)


def own_function(x: torch.Tensor, scale: torch.Tensor, given: torch.Tensor) -> tuple[torch.Tensor, ...]:
    with torch.enable_grad():
        x, scale = x.detach().requires_grad_(), scale.detach().requires_grad_()
        return torch.autograd.grad(Scale.apply(x, scale), (x, scale), given)


add("gradient of GELU", gradient(F.gelu), pair, (24, 40), (4096, 4096))
add("gradient of softmax by hand", softmax_gradient, pair, (24, 40), (4096, 4096))
add("gradient of a norm by hand", norm_gradient, pair, (24, 40), (4096, 4096))
add("gradient of a norm", gradient(lambda x: F.layer_norm(x, x.shape[-1:])), pair, (24, 40), (4096, 4096))
add(
    "gradient of cross entropy",
    loss_gradient,
    lambda n, d: (normal(n, d), whole(d, n)),
    (24, 40),
    (4096, 8192),
)
add(
    "gradient of attention",
    gradient(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True)),
    lambda b, n, d: tuple(normal(b, 2, n, d) for _ in range(4)),
    (2, 12, 16),
    (8, 1024, 64),
)
add(
    "gradient of a convolution",
    gradient(lambda x, w: F.conv2d(x, w, padding=1)),
    lambda b, c, n: (normal(b, c, n, n), normal(c, c, 3, 3), normal(b, c, n, n)),
    (2, 4, 8),
    (16, 64, 64),
)
add(
    "function with its own gradient",
    own_function,
    lambda n, d: (*rows(n, d), normal(d), normal(n, d)),
    (24, 40),
    (4096, 4096),
)
MODULES.module("gradients of parameters", Layer, rows, (16, 40), (4096, 1024))
