"""Sorts, selections, searches and counts."""

from __future__ import annotations

import torch

from .written import Collection, normal, whole

MODULES = Collection("sorting")
add = MODULES.function


def rows(n: int, d: int) -> tuple[torch.Tensor]:
    return (normal(n, d),)


add("sort", lambda x: torch.sort(x, dim=-1), rows, (12, 40), (1024, 4096))
add("sort downwards", lambda x: x.sort(dim=0, descending=True).values, rows, (40, 12), (65536, 64))
add("stable order", lambda x: x.argsort(dim=-1, stable=True), rows, (12, 40), (1024, 4096))
add("largest eight", lambda x: torch.topk(x, 8), rows, (12, 40), (4096, 8192))
add("values of the smallest", lambda x: x.topk(5, largest=False).values.sum(-1), rows, (12, 40), (4096, 8192))
add("place of the maximum", lambda x: x.argmax(-1), rows, (24, 40), (8192, 8192))
add("place of the least product", lambda x: (x @ x.t()).argmin(-1), rows, (24, 16), (4096, 256))
add("maximum and place", lambda x: torch.max(x, 1), rows, (24, 40), (8192, 8192))
add("median", lambda x: torch.median(x, -1), rows, (12, 41), (1024, 4097))
add("running maximum", lambda x: torch.cummax(x, -1), rows, (12, 40), (2048, 8192))
add(
    "search in sorted rows",
    lambda edges, x: torch.searchsorted(edges, x),
    lambda n, d: (normal(n, d).sort(-1).values, normal(n, d)),
    (12, 40),
    (2048, 2048),
)
add("histogram", lambda i: torch.bincount(i, minlength=32), lambda n: (whole(32, n),), (200,), (1 << 22,))
add("masked selection", lambda x: x[x > 0.25], rows, (16, 40), (4096, 2048))
add("places of the positive", lambda x: torch.nonzero(x > 1.0), rows, (16, 40), (2048, 2048))
add(
    "order of keys and values",
    lambda i, x: x[i.argsort(stable=True)],
    lambda n, d: (whole(8, n), normal(n, d)),
    (40, 8),
    (65536, 64),
)
add("distinct values", lambda i: torch.unique(i), lambda n: (whole(4 * n, n),), (200,), (1 << 20,))
