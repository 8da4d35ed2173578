"""The right answer, in float64.

Every problem is computed from its formula in blocks whose temporaries stay under a bound, so that a sequence of 16384
or a product of 16384 fits beside the case that is being judged.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

from perfsuite.oracle.effort import DEAR_FLOPS
from perfsuite.problems import Attention, Custom, Decode, Gemm
from perfsuite.problems.base import Inputs, Problem, ReferenceUnavailableError
from perfsuite.problems.tensors import map_tensors, tensors_in

if TYPE_CHECKING:
    import torch

# Bytes of the largest temporary, and the FLOPs beyond which only some rows are computed: on a CPU about a second of two
# cores' float64.
BLOCK_BYTES = {"cuda": 1 << 29, "cpu": 1 << 25}
MOST_FLOPS = {"cuda": DEAR_FLOPS, "cpu": 4e10}
FEWEST_ROWS = 16
MASKED_BLOCKS, MASKED_ROWS = 16, 512
"""Blocks that the queries of a masked attention are cut into, unless they would have fewer rows: what lies behind the
last query's keys is never formed, and that is half of a causal case less half a block."""


def reference(problem: Problem, inputs: Inputs, *, rows: torch.Tensor | None = None) -> Any:
    """The result of `problem` on `inputs` in float64, on the inputs' device.

    rows: indices along the next to last axis of the result (rows of a GEMM, queries of an attention) to compute; all
    of them unless given. Of a custom problem the result is whatever its function returns, in float64.
    ReferenceUnavailableError where a custom problem has neither a reference nor a rival that takes float64.
    """
    if isinstance(problem, Gemm):
        return _gemm(*inputs.args, rows=rows)
    if isinstance(problem, Attention):
        return _attention(problem, *inputs.args, rows=rows)
    if isinstance(problem, Decode):
        return _decode(problem, *inputs.args)
    if isinstance(problem, Custom):
        return _custom(problem, inputs)
    return problem.reference(inputs, rows=rows)


def rows_to_check(problem: Problem, device: str, *, whole: bool = False) -> torch.Tensor | None:
    """Which rows of the result are computed and compared: None for all, or indices of some.

    Beyond MOST_FLOPS, as many rows as that many FLOPs allow are drawn afresh at every call (so that no candidate can
    know them), the first and the last always among them. whole: all of them on a GPU, however long it takes.
    """
    import torch

    most = MOST_FLOPS[device]
    total, flops = problem.row_count, problem.flops or 0.0
    if (whole and device != "cpu") or total is None or flops <= most:
        return None
    count = max(FEWEST_ROWS, int(total * most / flops))
    if count >= total:
        return None
    secret = torch.Generator().manual_seed(secrets.randbits(63))
    chosen = torch.randperm(total, generator=secret)[: count - 2]
    return torch.cat([chosen, torch.tensor([0, total - 1])]).unique()


def _gemm(a: torch.Tensor, b: torch.Tensor, *, rows: torch.Tensor | None) -> torch.Tensor:
    import torch

    if rows is not None:
        a = a.index_select(-2, rows.to(a.device))
    out = torch.empty((*a.shape[:-1], b.shape[-1]), dtype=torch.float64, device=a.device)
    left, right, result = (t if t.dim() == 3 else t.unsqueeze(0) for t in (a, b, out))
    step = max(1, BLOCK_BYTES[a.device.type] // (8 * max(a.shape[-1], b.shape[-1])))
    for one in range(left.shape[0]):
        wide = right[one].double()
        for start in range(0, left.shape[1], step):
            block = slice(start, start + step)
            torch.mm(left[one, block].double(), wide, out=result[one, block])
    return out


def _attention(
    problem: Attention, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, rows: torch.Tensor | None
) -> torch.Tensor:
    import torch

    device = q.device
    positions = torch.arange(problem.seq_q, device=device)
    if rows is not None:
        positions = rows.to(device)
        q = q.index_select(2, positions)
    count, group = q.shape[2], problem.heads // problem.key_heads
    # One "head" below is a key head with the queries of its whole group: (batch * kv_heads, group, rows, head_dim).
    queries = q.reshape(-1, group, count, problem.head_dim)
    keys, values = (t.reshape(-1, problem.keys, problem.head_dim) for t in (k, v))
    out = torch.empty(queries.shape, dtype=torch.float64, device=device)
    room = max(1, BLOCK_BYTES[device.type] // (8 * problem.keys * group))
    step = min(count, room)
    if problem.causal or problem.banded:
        step = min(step, max(MASKED_ROWS, -(-count // MASKED_BLOCKS)))
    heads = max(1, room // step)
    for head in range(0, queries.shape[0], heads):
        some = slice(head, head + heads)
        q64, k64, v64 = queries[some].double() * problem.scaling, keys[some].double().mT, values[some].double()
        for start in range(0, count, step):
            block = slice(start, start + step)
            at = positions[block]
            seen = common = slice(0, problem.keys)
            if problem.causal or problem.banded:
                first, last = start, min(start + step, count) - 1
                if rows is not None:
                    first, last = int(rows[block].min()), int(rows[block].max())
                spans = problem.span(first), problem.span(last)
                seen = slice(spans[0][0], max(1, spans[1][1]))
                common = slice(spans[1][0], max(spans[1][0], spans[0][1]))  # what each of the queries sees
                if seen.start >= seen.stop:  # no query of the block sees a key
                    out[some, :, block] = 0.0
                    continue
            # The scores are the largest thing in memory, and passes over them are what takes time: scaled queries, and
            # softmax by one kernel.
            scores = q64[:, :, block].flatten(1, 2) @ k64[..., seen]
            logits = scores.unflatten(1, (group, -1))
            for begin, end in ((seen.start, min(common.start, seen.stop)), (max(common.stop, seen.start), seen.stop)):
                if begin < end:
                    hidden = ~problem.visible(at, torch.arange(begin, end, device=device))
                    logits[..., begin - seen.start : end - seen.start].masked_fill_(hidden, float("-inf"))
            out[some, :, block] = (scores.softmax(-1) @ v64[:, seen]).unflatten(1, (group, -1))
            if problem.banded:  # a query that sees no key gives zeros
                blind = ~problem.visible(at, torch.arange(seen.start, seen.stop, device=device)).any(-1)
                out[some, :, block].masked_fill_(blind[:, None], 0.0)
    return out.reshape(q.shape)


def _decode(
    problem: Decode,
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    cache_lens: torch.Tensor,
    block_table: torch.Tensor | None = None,
) -> torch.Tensor:
    """As many sequences, or key heads of one sequence, at a time as there is room for; pages are gathered first."""
    import torch

    rows = problem.heads // problem.key_heads * problem.seq_q
    # (batch, kv_heads, group and queries, head_dim): one product for all that share keys.
    queries = q.reshape(problem.batch, problem.key_heads, rows, problem.head_dim)
    out = torch.empty(queries.shape, dtype=torch.float64, device=q.device)
    hidden = ~problem.visible(q.device).repeat(rows // problem.seq_q, 1) if problem.seq_q > 1 else None
    room = max(1, BLOCK_BYTES[q.device.type] // (8 * problem.length * max(problem.head_dim, rows)))
    heads = min(problem.key_heads, room)
    sequences = max(1, room // problem.key_heads)
    for start in range(0, problem.batch, sequences):
        for head in range(0, problem.key_heads, heads):
            some = slice(start, start + sequences), slice(head, head + heads)
            logits = (queries[some].double() * problem.scaling) @ keys_of(k_cache, block_table, *some).double().mT
            if hidden is not None:
                logits.masked_fill_(hidden, float("-inf"))
            out[some] = logits.softmax(-1) @ keys_of(v_cache, block_table, *some).double()
    return out.reshape(q.shape)


def keys_of(cache: torch.Tensor, block_table: torch.Tensor | None, sequences: slice, heads: slice) -> torch.Tensor:
    """(sequences, heads, length, head_dim): the keys, or values, of some heads of some sequences of a Decode."""
    if block_table is None:
        return cache[sequences, heads]
    # (sequences, pages, page, heads, head_dim)
    return cache[block_table[sequences].long(), :, heads].flatten(1, 2).transpose(1, 2)


def _custom(problem: Custom, inputs: Inputs) -> Any:
    import torch

    function, what = (problem.reference, "reference") if problem.reference else (problem.against, "rival")
    if function is None:
        raise ReferenceUnavailableError(
            f"{problem.label} has no right answer to compare with: pass reference=, a callable that takes the same "
            "arguments in float64, or against="
        )
    wide = map_tensors(inputs, _widen)
    try:
        result = wide.call(function)
    except Exception as error:  # whatever the user's function raises is the message's business, not ours
        raise ReferenceUnavailableError(
            f"the {what} of {problem.label} fails on arguments widened to float64 ({type(error).__name__}: {error}); "
            "pass reference=, a callable that takes the same arguments in float64"
        ) from error
    for tensor in tensors_in(result):
        if (tensor.is_floating_point() or tensor.is_complex()) and tensor.dtype not in (
            torch.float64,
            torch.complex128,
        ):
            raise ReferenceUnavailableError(
                f"the {what} of {problem.label} returns {tensor.dtype} for float64 arguments; pass reference=, a "
                "callable that computes in float64"
            )
    return result


def _widen(tensor: torch.Tensor) -> torch.Tensor:
    import torch

    if tensor.is_complex():
        return tensor.to(torch.complex128)
    return tensor.double() if tensor.is_floating_point() else tensor
