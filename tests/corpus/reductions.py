"""Reductions to fewer elements."""

from __future__ import annotations

import torch

from .written import Collection, normal, positive, whole

MODULES = Collection("reductions")


def cube(batch: int, rows: int, width: int) -> tuple[torch.Tensor]:
    return (normal(batch, rows, width),)


SMALL, CARD = (4, 12, 20), (64, 1024, 512)
FUNCTIONS = {
    "sum of rows": lambda x: x.sum(1),
    "sum of all": lambda x: x.sum(),
    "sum as a number": lambda x: x.sum().item(),
    "mean of rows": lambda x: x.mean(1),
    "mean with a kept axis": lambda x: x.mean(-1, keepdim=True),
    "maximum": lambda x: x.amax(1),
    "minimum": lambda x: x.amin(-1),
    "maximum and its place": lambda x: x.max(-1),
    "argument of the maximum": lambda x: x.argmax(-1),
    "argument of the minimum": lambda x: x.argmin(1),
    "variance and mean": lambda x: torch.var_mean(x, dim=-1),
    "logarithm of a sum of exponentials": lambda x: x.logsumexp(-1),
    "Euclidean norms": lambda x: torch.linalg.vector_norm(x, dim=-1),
    "any and all": lambda x: ((x > 2).any(-1), (x > -2).all(-1)),
    "count of positives": lambda x: (x > 0).sum(-1),
    "elements above a half": lambda x: x[x > 0.5],
    "trace of products": lambda x: torch.einsum("bij,bij->b", x, x),
}
for name, function in FUNCTIONS.items():
    MODULES.function(name, function, cube, SMALL, CARD)
MODULES.function("product of rows", lambda x: x.prod(-1), lambda *n: (0.5 + positive(*n),), (4, 12, 20), (64, 1024, 64))
MODULES.function("sum of integers", lambda x: x.sum(-1), lambda *n: (whole(1000, *n),), SMALL, CARD)
MODULES.function("sum of bfloat16", lambda x: x.sum(-1), lambda *n: (cube(*n)[0].bfloat16(),), SMALL, CARD)
