"""Planning helpers for tensors: what attention will take, which batch fits, padding to what tensor cores like."""

from __future__ import annotations

import torch
from torch import Tensor

from perfsuite.memory import model as memory_model
from perfsuite.memory import planning


def estimate_attention_memory(
    batch: int, heads: int, seq: int, head_dim: int, dtype: torch.dtype = torch.float16
) -> float:
    """Bytes that flash attention takes, estimated: q, k, v, the output and a working set of a tenth of the output.

    (2, 16, 8192, 64) in float16 gives 131.2 MiB. For predictions that are held against the allocator, and for
    algorithms that write out the score matrix, see `perfsuite memory attention`.
    """
    memory = memory_model.attention_bytes(batch, heads, seq, head_dim, dtype=str(dtype))
    return planning.with_working_set(memory)


def find_optimal_batch_size(
    heads: int, seq: int, head_dim: int, memory_limit_bytes: float, dtype: torch.dtype = torch.float16
) -> int:
    """The largest power-of-two batch whose flash attention fits the limit with 20 % to spare; 0 where none fits."""
    return planning.largest_batch(estimate_attention_memory(1, heads, seq, head_dim, dtype), memory_limit_bytes)


def pad_to_alignment(tensor: Tensor, multiple: int = planning.ALIGNMENT) -> Tensor:
    """`tensor`, its last two dimensions padded with zeros to multiples of `multiple`; itself where they are already.

    Zeros at the end of both operands' inner dimension leave a product as it is; cut the other dimensions of the
    result back. For attention that holds for head_dim (pass the scale of the unpadded one), not for the length of
    the keys: a key of zeros has a weight of its own.

    Raises ValueError for a tensor of fewer than two dimensions or a multiple under 1.
    """
    if tensor.dim() < 2:
        raise ValueError(f"tensor has {tensor.dim()} dimensions; it must have at least 2")
    rows, columns = (planning.aligned(size, multiple) - size if size else 0 for size in tensor.shape[-2:])
    return torch.nn.functional.pad(tensor, (0, columns, 0, rows)) if rows or columns else tensor
