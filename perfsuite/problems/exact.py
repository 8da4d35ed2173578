"""Parts of the families' right answers: bounds of float64 blocks, and float32 sums that add term after term."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

BLOCK_BYTES = {"cuda": 1 << 29, "cpu": 1 << 25}
"""Largest temporary of a float64 answer, so that it fits beside the case that is judged."""
MOST_HEADS = {"cuda": 1 << 16, "cpu": 1}
"""Most heads whose float64 gradients are computed at once: on a card each head alone would be a few dozen small
kernels, while a processor keeps one head in its cache."""
MASKED_BLOCKS, MASKED_ROWS = 16, 512
"""Most blocks of queries of a masked float64 answer, and least rows of a block. Keys behind a block's last query are
not read: of a causal case, almost half."""
MOST_ROWS, MOST_COLUMNS = 64, 256
"""Size of the sample on which sums are taken in order, since each term is one step."""


def running(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """left (m, k) times right (k, n), adding term after term."""
    sums = left.new_zeros((left.shape[0], right.shape[1]))
    for term in range(left.shape[1]):
        sums.addcmul_(left[:, term : term + 1], right[term : term + 1])
    return sums


def attended(logits: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """softmax(logits) values, adding term after term; `logits` (m, k), `values` (k, n)."""
    weights = (logits - logits.amax(-1, keepdim=True)).exp_()
    return running(weights, values) / running(weights, values.new_ones((len(values), 1)))


def spread(size: int, most: int, device: torch.device) -> torch.Tensor:
    """At most `most` indices below `size`, evenly spaced."""
    import torch

    return torch.linspace(0, size - 1, min(size, most), device=device).round().long()
