"""A fingerprint of inputs, which shows that a call has overwritten a value."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from perfsuite.problems.base import Inputs
from perfsuite.problems.tensors import bits, tensors_in

if TYPE_CHECKING:
    import torch

STACKED_BYTES = 1 << 25
"""Bytes of small tensors that one stack holds, to be summed at once."""


def fingerprint(sets: Sequence[Inputs]) -> list[torch.Tensor]:
    """Two int64 sums over the bits of each tensor, on its device; does not wait for the device.

    They stay the same when values change places. They differ when another value overwrites one, and, but for a chance
    in millions, when several are overwritten. The second sum is that of v (1 + 2 v) in the integers of the element's
    width, which maps these one to one (R. L. Rivest, "Permutation polynomials modulo 2^w", 2001).
    """
    import torch

    sums = []
    for values in _side_by_side(bits(tensor) for tensor in tensors_in(list(sets)) if 0 not in tensor.stride()):
        if values.element_size() == 1:  # bytes have too few values: other bytes could give the same two sums
            values = values.to(torch.int16)
        mixed = torch.addcmul(values, values, values, value=2)
        places = tuple(range(1, values.dim()))
        sums.append(torch.stack([values.sum(places, dtype=torch.int64), mixed.sum(places, dtype=torch.int64)]))
    return sums


def _side_by_side(tensors: Iterable[torch.Tensor]) -> Iterator[torch.Tensor]:
    """The tensors with one more axis in front: small ones of one kind stacked, to save kernels, large ones as views."""
    import torch

    alike: dict[tuple[object, ...], list[torch.Tensor]] = {}
    for tensor in tensors:
        size = max(1, tensor.numel() * tensor.element_size())
        if tensor.dim() == 0:
            tensor = tensor.view(1)
        if size > STACKED_BYTES // 2:
            yield tensor.unsqueeze(0)
            continue
        group = alike.setdefault((tensor.dtype, tensor.device, tensor.shape), [])
        group.append(tensor)
        if len(group) * size > STACKED_BYTES:
            yield torch.stack(group)
            group.clear()
    yield from (torch.stack(group) for group in alike.values() if group)


def same_fingerprint(one: Sequence[torch.Tensor], other: Sequence[torch.Tensor]) -> bool:
    """True if two fingerprints of the same sets agree; waits for the device."""
    import torch

    if len(one) != len(other):
        return False
    return not one or torch.equal(torch.cat(list(one), 1), torch.cat(list(other), 1))
