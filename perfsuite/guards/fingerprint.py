"""A fingerprint of inputs, which shows that a call has overwritten a value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from perfsuite.problems.base import Inputs
from perfsuite.problems.host_memory import FIRST, host_memory, in_view
from perfsuite.problems.tensors import dense, tensors_in, words

if TYPE_CHECKING:
    import torch

TOGETHER_BYTES = 1 << 25
"""Bytes of small tensors that are summed at once."""
HOST_BYTES = 1 << 20
"""Bytes of a tensor on the host up to which its memory itself is noted."""
BLOCK_BYTES = 1 << 27
"""Bytes of a large tensor that are summed at once. The sums need as much memory again."""


def fingerprint(sets: Sequence[Inputs]) -> list[bytes | torch.Tensor]:
    """The bytes of small tensors on the host, and pairs of int64 sums over the memory of all others, on their device.

    This does not wait for the device. Sums stay the same when words change places. They differ when another value
    overwrites one, and, but for a chance in millions, when several are overwritten. The second sum is that of
    w (1 + 2 w) in the integers of the word's width, which maps these one to one (R. L. Rivest, "Permutation polynomials
    modulo 2^w", 2001).
    """
    import torch

    found: list[bytes | torch.Tensor] = []
    small: dict[object, list[torch.Tensor]] = {}
    for tensor in tensors_in(list(sets)):
        if (memory := _bytes_of(tensor)) is not None:
            found.append(memory)
            continue
        values = words(tensor)
        if values.nbytes > TOGETHER_BYTES // 2:
            found.append(_sums(values))
            continue
        together = small.setdefault((values.dtype, values.device), [])
        if sum(one.nbytes for one in together) + values.nbytes > TOGETHER_BYTES:
            found.append(_sums(torch.cat(together)))
            together.clear()
        together.append(values.flatten())
    return found + [_sums(torch.cat(together)) for together in small.values()]


def _bytes_of(tensor: torch.Tensor) -> bytes | None:
    """A copy of the memory of a small dense tensor on the host, which takes a tenth of the time of its sums."""
    import torch

    if type(tensor) is not torch.Tensor or not tensor.is_cpu or tensor.layout is not torch.strided or tensor.is_nested:
        return None
    place = tensor.data_ptr()
    if not 0 < tensor.nbytes <= HOST_BYTES or not dense(tensor) or not in_view((place,), tensor.nbytes):
        return None
    begin = place - FIRST
    return bytes(host_memory()[begin : begin + tensor.nbytes])


def _sums(values: torch.Tensor) -> torch.Tensor:
    import torch

    rows = max(1, BLOCK_BYTES * len(values) // max(1, values.nbytes)) if values.dim() else 1
    blocks = values.split(rows) if values.dim() and values.nbytes > BLOCK_BYTES else [values]
    found = [_block_sums(block) for block in blocks]
    return found[0] if len(found) == 1 else torch.stack(found).sum(0)


def _block_sums(values: torch.Tensor) -> torch.Tensor:
    import torch

    if values.element_size() == 1:  # bytes have too few values: other bytes could give the same two sums
        values = values.to(torch.int16)
    mixed = torch.addcmul(values, values, values, value=2)
    return torch.stack([values.sum(dtype=torch.int64), mixed.sum(dtype=torch.int64)])


def same_fingerprint(one: Sequence[bytes | torch.Tensor], other: Sequence[bytes | torch.Tensor]) -> bool:
    """True if two fingerprints of the same sets agree; waits for the device."""
    import torch

    ours, theirs = ([mark for mark in marks if isinstance(mark, bytes)] for marks in (one, other))
    mine, others = ([mark for mark in marks if not isinstance(mark, bytes)] for marks in (one, other))
    if ours != theirs or len(mine) != len(others):
        return False
    return not mine or torch.equal(torch.stack(mine), torch.stack(others))
