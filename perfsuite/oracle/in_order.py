"""The textbook's answer: float32 sums taken one term after the other.

A library splits long sums into many short ones and errs less than the precision asks for. A candidate that adds in
order has given up no precision, so where a float32 result errs more than twice as much as the library's, what plain
sums give on the same inputs counts as well. Computed only then, and on a sample: it is a step a term.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfsuite.oracle.reference import keys_of
from perfsuite.problems import Attention, Decode, Gemm
from perfsuite.problems.base import Inputs, Problem

if TYPE_CHECKING:
    import torch

MOST_ROWS, MOST_COLUMNS = 64, 256


def in_order(
    problem: Problem, inputs: Inputs, right: torch.Tensor, rows: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor] | None:
    """(plain float32 sums, the same part of `right`) on evenly spaced rows and columns of one matrix or head.

    right: the float64 result, of the given rows only where there are any. None for problems whose sums are not known.
    """
    if isinstance(problem, Gemm):
        a, b = inputs.args
        return _gemm(a if rows is None else a.index_select(-2, rows), b, right)
    if isinstance(problem, Attention):
        q, k, v = inputs.args
        return _attention(problem, q, k, v, right, rows)
    if isinstance(problem, Decode):
        return _decode(problem, *inputs.args, right=right)
    return problem.in_order(inputs, right, rows)


def _gemm(a: torch.Tensor, b: torch.Tensor, right: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    if a.dim() == 3:
        a, b, right = a[-1], b[-1], right[-1]
    rows, columns = _spread(a.shape[0], MOST_ROWS, a.device), _spread(b.shape[1], MOST_COLUMNS, a.device)
    sums = _running(a[rows].float(), b[:, columns].float())
    return sums, right[rows][:, columns]


def _attention(
    problem: Attention,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    right: torch.Tensor,
    only: torch.Tensor | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    import torch

    chosen = _spread(right.shape[-2], MOST_ROWS, q.device)
    rows = chosen if only is None else only[chosen]
    queries, keys, values = q[-1, -1][rows].float(), k[-1, -1].float(), v[-1, -1].float()
    logits = _running(queries, keys.mT) * problem.scaling
    if problem.causal or problem.banded:
        logits.masked_fill_(~problem.visible(rows, torch.arange(problem.keys, device=q.device)), float("-inf"))
    weights = (logits - logits.amax(-1, keepdim=True)).exp_()
    total = _running(weights, torch.ones_like(values[:, :1]))
    return _running(weights, values) / total, right[-1, -1][chosen]


def _decode(
    problem: Decode,
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    cache_lens: torch.Tensor,
    block_table: torch.Tensor | None = None,
    *,
    right: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    last = slice(problem.key_heads - 1, problem.key_heads)
    keys, values = (keys_of(cache, block_table, slice(-1, None), last)[0, 0].float() for cache in (k_cache, v_cache))
    logits = _running(q[-1, -1].float(), keys.mT) * problem.scaling
    if problem.seq_q > 1:
        logits.masked_fill_(~problem.visible(q.device), float("-inf"))
    weights = (logits - logits.amax(-1, keepdim=True)).exp_()
    return _running(weights, values) / _running(weights, weights.new_ones((problem.length, 1))), right[-1, -1]


def _running(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """left (m, k) times right (k, n), adding term after term."""
    sums = left.new_zeros((left.shape[0], right.shape[1]))
    for term in range(left.shape[1]):
        sums.addcmul_(left[:, term : term + 1], right[term : term + 1])
    return sums


def _spread(size: int, most: int, device: torch.device) -> torch.Tensor:
    import torch

    return torch.linspace(0, size - 1, min(size, most), device=device).round().long()
