"""Buffers for attention, allocated once and handed out as views."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class AttentionBuffers(NamedTuple):
    """Views of one size into the pool: (batch, heads, seq, head_dim) each, contiguous."""

    q: Tensor
    k: Tensor
    v: Tensor
    output: Tensor


class AttentionMemoryPool:
    """q, k, v and output for attention calls of up to `max_batch` sequences of up to `max_seq`.

    A serving loop whose batch and length change with every step allocates once. The views of a request overlap those
    of every other: what one holds is gone when the next is written. Their contents are whatever was there before.

    Raises ValueError for a size under 1, and torch.OutOfMemoryError where the device has not that much memory.
    """

    def __init__(
        self,
        max_batch: int,
        heads: int,
        max_seq: int,
        head_dim: int,
        *,
        dtype: torch.dtype = torch.float16,
        device: torch.device | str = "cuda",
    ) -> None:
        self.max_batch, self.heads = _at_least_one("max_batch", max_batch), _at_least_one("heads", heads)
        self.max_seq, self.head_dim = _at_least_one("max_seq", max_seq), _at_least_one("head_dim", head_dim)
        self._a_buffer = self.max_batch * self.heads * self.max_seq * self.head_dim
        self._memory = torch.empty((4, self._a_buffer), dtype=dtype, device=device)

    @property
    def nbytes(self) -> int:
        """Bytes of all four buffers."""
        return self._memory.numel() * self._memory.element_size()

    @property
    def device(self) -> torch.device:
        """Where the buffers are."""
        return self._memory.device

    def buffers(self, batch: int, seq: int) -> AttentionBuffers:
        """Contiguous views for a batch of sequences of a length; no memory is allocated.

        Raises ValueError where the pool is too small, or a size is under 1.
        """
        for name, value, most in (("batch", batch, self.max_batch), ("seq", seq, self.max_seq)):
            if not 1 <= value <= most:
                raise ValueError(f"{name} is {value}; the pool was made for 1 to {most}")
        shape = (batch, self.heads, seq, self.head_dim)
        elements = batch * self.heads * seq * self.head_dim
        return AttentionBuffers(*(whole[:elements].view(shape) for whole in self._memory))


def _at_least_one(name: str, value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} is {value!r}; it must be a whole number of at least 1")
    return value
