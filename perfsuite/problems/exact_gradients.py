"""Float64 gradients of the families, in blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfsuite.problems.exact import BLOCK_BYTES, MASKED_BLOCKS, MASKED_ROWS, MOST_HEADS

if TYPE_CHECKING:
    import torch

    from perfsuite.problems.families.attention import Attention


def attention_gradients(
    problem: Attention, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, gradient: torch.Tensor
) -> tuple[torch.Tensor | None, list[torch.Tensor]]:
    """(the result of attention, [its gradients by q, k and v]), all float64 and in the operands' shapes.

    gradient: of the result, in its shape. A query that sees no key has the result 0, and no part in any gradient.
    The result is None where the backward alone is asked for.

    With P the weights, dP = dO V^T and D the row sums of dP * P: dV = P^T dO, dS = P * (dP - D), dQ = scale dS K and
    dK = scale dS^T Q (Dao et al., FlashAttention, appendix B.2, where D has another form).
    """
    import torch

    group, keys = problem.heads // problem.key_heads, problem.keys
    # One "head" below is a key head with the queries of its whole group.
    queries, upstream = (t.reshape(-1, group, problem.seq_q, t.shape[-1]) for t in (q, gradient))
    heads_k, heads_v = (t.reshape(-1, keys, t.shape[-1]) for t in (k, v))
    by_q = torch.zeros(queries.shape, dtype=torch.float64, device=q.device)
    by_k, by_v = (torch.zeros(t.shape, dtype=torch.float64, device=q.device) for t in (heads_k, heads_v))
    out = None if problem.backward == "only" else torch.zeros(upstream.shape, dtype=torch.float64, device=q.device)
    room = max(1, BLOCK_BYTES[q.device.type] // (4 * 8 * keys * group))  # up to four matrices of weights at once
    step = min(problem.seq_q, room)
    if problem.causal or problem.banded:
        step = min(step, max(MASKED_ROWS, -(-problem.seq_q // MASKED_BLOCKS)))
    heads = max(1, min(MOST_HEADS[q.device.type], room // step))
    for head in range(0, queries.shape[0], heads):
        some = slice(head, head + heads)
        # Passes over the weights take as long as the products. So queries are scaled instead of scores and dS.
        q64, k64, v64 = queries[some].double() * problem.scaling, heads_k[some].double(), heads_v[some].double()
        for start in range(0, problem.seq_q, step):
            block = slice(start, min(start + step, problem.seq_q))
            seen, common = problem.keys_of(start, block.stop - 1)
            if seen.start >= seen.stop:  # no query of the block sees a key
                continue
            mine = q64[:, :, block].flatten(1, 2)
            towards = upstream[some, :, block].double().flatten(1, 2)
            scores = mine @ k64[:, seen].mT
            at = torch.arange(block.start, block.stop, device=q.device)
            problem.hide(scores.unflatten(1, (group, -1)), at, seen, common)
            weights = scores.softmax(-1)
            del scores
            if problem.banded:  # a row of -inf alone becomes NaN, which is no weight
                weights.unflatten(1, (group, -1))[:, :, problem.blind(at, seen)] = 0.0
            if out is not None:
                out[some, :, block] = (weights @ v64[:, seen]).unflatten(1, (group, -1))
            by_v[some, seen].baddbmm_(weights.mT, towards)
            by_scores = torch._softmax_backward_data(towards @ v64[:, seen].mT, weights, -1, torch.float64)
            by_k[some, seen].baddbmm_(by_scores.mT, mine)
            by_q[some, :, block] = (by_scores @ k64[:, seen]).mul_(problem.scaling).unflatten(1, (group, -1))
    result = None if out is None else out.reshape(gradient.shape)
    return result, [by_q.reshape(q.shape), by_k.reshape(k.shape), by_v.reshape(v.shape)]


def product_gradients(
    a: torch.Tensor, b: torch.Tensor, gradient: torch.Tensor
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """(a b, [its gradients by a and b]) in float64, for matrices or batches of them."""
    wide_a, wide_b, upstream = a.double(), b.double(), gradient.double()
    return wide_a @ wide_b, [upstream @ wide_b.mT, wide_a.mT @ upstream]
