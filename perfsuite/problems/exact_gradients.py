"""Float64 gradients of the families, in blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfsuite.problems.exact import BLOCK_BYTES

if TYPE_CHECKING:
    import torch

    from perfsuite.problems.families.attention import Attention


def attention_gradients(
    problem: Attention, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, gradient: torch.Tensor
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """(the result of attention, [its gradients by q, k and v]), all float64 and in the operands' shapes.

    gradient: of the result, in its shape. A query that sees no key has the result 0, and no part in any gradient.

    With P the weights, O = P V and D the row sums of dO * O: dV = P^T dO, dS = P * (dO V^T - D), dQ = scale dS K and
    dK = scale dS^T Q (Dao et al., FlashAttention, appendix B.2).
    """
    import torch

    group, keys = problem.heads // problem.key_heads, problem.keys
    # One "head" below is a key head with the queries of its whole group.
    queries, upstream = (t.reshape(-1, group, problem.seq_q, t.shape[-1]) for t in (q, gradient))
    heads_k, heads_v = (t.reshape(-1, keys, t.shape[-1]) for t in (k, v))
    by_q, out = (torch.empty(t.shape, dtype=torch.float64, device=q.device) for t in (queries, upstream))
    by_k, by_v = (torch.zeros(t.shape, dtype=torch.float64, device=q.device) for t in (heads_k, heads_v))
    masked = problem.causal or problem.banded
    step = max(1, BLOCK_BYTES[q.device.type] // (4 * 8 * keys * group))  # four matrices of weights at once
    for head in range(queries.shape[0]):
        k64, v64 = heads_k[head].double(), heads_v[head].double()
        for start in range(0, problem.seq_q, step):
            block = slice(start, min(start + step, problem.seq_q))
            end = problem.span(block.stop - 1)[1] if masked else keys
            seen = slice(problem.span(start)[0] if masked else 0, max(1, end))
            if seen.start >= seen.stop:  # no query of the block sees a key
                out[head, :, block], by_q[head, :, block] = 0.0, 0.0
                continue
            mine = queries[head, :, block].double().flatten(0, 1)
            towards = upstream[head, :, block].double().flatten(0, 1)
            weights = (mine @ k64[seen].mT).mul_(problem.scaling)
            if masked:
                positions = torch.arange(block.start, block.stop, device=q.device)
                hidden = ~problem.visible(positions, torch.arange(seen.start, seen.stop, device=q.device))
                weights.view(group, *hidden.shape).masked_fill_(hidden, float("-inf"))
            # A row of -inf alone becomes NaN, which is no weight.
            weights = weights.softmax(-1).nan_to_num_(0.0) if problem.banded else weights.softmax(-1)
            result = weights @ v64[seen]
            by_v[head, seen].addmm_(weights.mT, towards)
            inner = (towards * result).sum(-1, keepdim=True)
            by_scores = (towards @ v64[seen].mT).sub_(inner).mul_(weights).mul_(problem.scaling)
            by_k[head, seen].addmm_(by_scores.mT, mine)
            out[head, :, block] = result.unflatten(0, (group, -1))
            by_q[head, :, block] = (by_scores @ k64[seen]).unflatten(0, (group, -1))
    return out.reshape(gradient.shape), [by_q.reshape(q.shape), by_k.reshape(k.shape), by_v.reshape(v.shape)]


def product_gradients(
    a: torch.Tensor, b: torch.Tensor, gradient: torch.Tensor
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """(a b, [its gradients by a and b]) in float64, for matrices or batches of them."""
    wide_a, wide_b, upstream = a.double(), b.double(), gradient.double()
    return wide_a @ wide_b, [upstream @ wide_b.mT, wide_a.mT @ upstream]
