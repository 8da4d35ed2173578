"""Makes the inputs new in every round at little cost, and takes a fingerprint that survives it.

A candidate that keeps results for inputs it has seen must not gain by it. New sets in every round would take longer
than the round, so a few values in each set change places, where only the harness knows. A kept result is then not
found, or it is found by a part of the inputs and wrong in some rows.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from perfsuite.problems.base import Inputs
from perfsuite.problems.tensors import bits, tensors_in

if TYPE_CHECKING:
    import torch

CHUNK = 256
"""Neighbouring elements that change places in each set."""
STACKED_BYTES = 1 << 25
"""Bytes of small tensors that one stack holds, to be summed at once."""


class Freshener:
    """Shuffles one stretch of values in each of `sets`, in place; the stretches are chosen once, at random.

    Only floating-point and 8-bit integer tensors change: wider integers may be indices.
    """

    def __init__(self, sets: Sequence[Inputs]) -> None:
        chooser = random.SystemRandom()
        stretches: dict[tuple[torch.dtype, int], list[torch.Tensor]] = {}
        for inputs in sets:
            able = [view for view in map(_in_memory_order, tensors_in(inputs)) if view is not None]
            if not able:
                continue
            flat = chooser.choice(able)
            size = min(CHUNK, flat.numel())
            start = chooser.randrange(flat.numel() - size + 1)
            stretches.setdefault((flat.dtype, size), []).append(flat[start : start + size])
        self._groups = [_Group(group) for group in stretches.values()]

    def freshen(self) -> None:
        """Change the values; a GPU gets a few small kernels on the current stream for all sets together."""
        for group in self._groups:
            group.shuffle()


class _Group:
    """Stretches of one dtype and length, shuffled at once: there are up to a thousand, and a round is short."""

    def __init__(self, stretches: list[torch.Tensor]) -> None:
        import torch

        self._stretches = stretches
        self._values = torch.stack(stretches)
        self._rows = list(self._values.unbind())
        # Not the device's default generator: a failed capture leaves that one unusable outside of captures.
        self._generator = torch.Generator(device=self._values.device)
        self._generator.seed()

    def shuffle(self) -> None:
        import torch

        order = torch.randperm(self._values.shape[1], device=self._values.device, generator=self._generator)
        self._values.copy_(self._values.index_select(1, order))
        torch._foreach_copy_(self._stretches, self._rows)


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


def _in_memory_order(tensor: torch.Tensor) -> torch.Tensor | None:
    """The tensor's elements as a vector, in the order of memory; None if they must not change places."""
    import torch

    movable = tensor.is_floating_point() or tensor.dtype in (torch.int8, torch.uint8)
    if not movable or tensor.numel() < 2:
        return None
    axes = sorted(range(tensor.dim()), key=lambda axis: tensor.stride(axis), reverse=True)
    ordered = tensor.permute(axes)
    return ordered.view(-1) if ordered.is_contiguous() else None
