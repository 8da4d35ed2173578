"""Matrix products."""

from __future__ import annotations

import torch
from torch import nn

from .written import Collection, normal

MODULES = Collection("products")
add = MODULES.function


def pair(m: int, n: int, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    return normal(m, k), normal(k, n)


def half_pair(m: int, n: int, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    return normal(m, k, dtype=torch.bfloat16), normal(k, n, dtype=torch.bfloat16)


add("square product", torch.matmul, lambda n: pair(n, n, n), (48,), (2048,))
add("rectangular product", torch.mm, pair, (40, 56, 24), (1024, 4096, 2048))
add("tall product", torch.mm, pair, (96, 8, 8), (65536, 64, 64))
add("long inner axis", torch.mm, pair, (16, 16, 512), (256, 256, 131072))
add("product of bfloat16", torch.mm, half_pair, (48, 32, 64), (4096, 4096, 4096))
add("product of float16", lambda a, b: a.half() @ b.half(), pair, (48, 32, 64), (4096, 4096, 4096))
add("transposed left", lambda a, b: a.t() @ b, lambda m, n, k: (normal(k, m), normal(k, n)), (24, 40, 32), (2048,) * 3)
add("transposed right", lambda a, b: a @ b.t(), lambda m, n, k: (normal(m, k), normal(n, k)), (24, 40, 32), (2048,) * 3)
add("batched product", torch.bmm, lambda b, n: (normal(b, n, n), normal(b, n, n)), (4, 24), (64, 512))
add("matrix and vector", torch.mv, lambda m, k: (normal(m, k), normal(k)), (64, 48), (8192, 8192))
add("matrix and scalar", lambda a, s: a * s, lambda n: (normal(n, n), 3.25), (48,), (8192,))
add("tensor and matrix", lambda a, b: a @ b, lambda b, n: (normal(b, b, n, n), normal(n, n)), (2, 16), (8, 512))
add(
    "four axes",
    lambda a, b: torch.einsum("bijl,lk->bijk", a, b),
    lambda n: (normal(2, n, n, n), normal(n, n)),
    (8,),
    (96,),
)
add("diagonal times matrix", lambda d, a: torch.diag(d) @ a, lambda n: (normal(n), normal(n, n)), (48,), (2048,))
add("upper triangular", lambda a, b: torch.triu(a @ b), lambda n: pair(n, n, n), (48,), (2048,))
add("lower triangular", lambda a, b: torch.tril(torch.tril(a) @ torch.tril(b)), lambda n: pair(n, n, n), (48,), (2048,))
add("outer product", torch.outer, lambda m, n: (normal(m), normal(n)), (48, 64), (8192, 8192))
add(
    "complex product",
    torch.mm,
    lambda n: (torch.complex(*pair(n, n, n)), torch.complex(*pair(n, n, n))),
    (24,),
    (1024,),
)
add("chain of three", lambda a, b, c: a @ b @ c, lambda n: (*pair(n, n, n), normal(n, n)), (32,), (1024,))
add(
    "product, bias and ReLU",
    lambda a, b, c: torch.relu(a @ b + c),
    lambda n: (*pair(n, n, n), normal(n)),
    (40,),
    (2048,),
)


class Mlp(nn.Module):
    """Three linear layers with ReLU between them."""

    def __init__(self, batch: int, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width), nn.ReLU(), nn.Linear(width, 10))
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


class LowRank(nn.Module):
    """A linear layer with an addition of low rank."""

    def __init__(self, batch: int, width: int) -> None:
        super().__init__()
        self.base = nn.Linear(width, width, bias=False)
        self.down = nn.Parameter(torch.randn(width, 8) / width**0.5)
        self.up = nn.Parameter(torch.randn(8, width) / 8**0.5)
        self.scale = 2.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base(x) + self.scale * (x @ self.down @ self.up)


class Experts(nn.Module):
    """A dense mixture of four experts, weighted by a softmax of the router."""

    def __init__(self, batch: int, width: int) -> None:
        super().__init__()
        self.router = nn.Linear(width, 4)
        self.experts = nn.Parameter(torch.randn(4, width, width) / width**0.5)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        weights = self.router(x).softmax(-1)
        return {"out": torch.einsum("bw,ewv,be->bv", x, self.experts, weights), "weights": weights}


def rows(batch: int, width: int) -> tuple[torch.Tensor]:
    return (normal(batch, width),)


MODULES.module("linear", lambda b, w: nn.Linear(w, w), rows, (16, 48), (4096, 2048))
MODULES.module("bilinear", lambda b, w: nn.Bilinear(w, w, 8), lambda b, w: rows(b, w) * 2, (16, 12), (512, 256))
MODULES.module("perceptron", Mlp, rows, (16, 32), (2048, 1024))
MODULES.module("low rank", LowRank, rows, (16, 48), (4096, 2048))
MODULES.module("mixture of experts", Experts, rows, (16, 24), (1024, 512))
MODULES.module(
    "half linear",
    lambda b, w: nn.Linear(w, w).bfloat16(),
    lambda b, w: (rows(b, w)[0].bfloat16(),),
    (16, 48),
    (8192, 2048),
)
