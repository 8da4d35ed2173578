"""Float64 answers that do not fit beside the case: computed in blocks along one axis, or on the host.

A function may be cut along an axis if it gives the same result for a part of the arguments as for the whole. That is
tried out with the function itself, on parts at both ends and in the middle.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from perfsuite.problems.answers import Answer
from perfsuite.problems.base import Inputs
from perfsuite.problems.tensors import map_tensors, tensors_in

from .answer import in_float64
from .mode import TooLongError
from .twins import plain, wide

if TYPE_CHECKING:
    import torch

PIECES = (8, 64, 512)
"""Numbers of blocks, tried one after the other until one fits."""
NEAR = 1e-2
"""Relative distance of two results of one function that count as the same; mixed rows differ by about 1."""
HOST_SECONDS = 60.0
"""Host time after which an answer on the host is given up."""


@dataclass(frozen=True)
class _Cut:
    """A way to cut the arguments: which tensors, numbered in order, and along which axis."""

    axis: int
    size: int
    places: frozenset[int]

    def part(self, inputs: Inputs, first: int, end: int) -> Inputs:
        count = iter(range(1 << 30))

        def narrow(tensor: torch.Tensor) -> torch.Tensor:
            return tensor.narrow(self.axis, first, end - first) if next(count) in self.places else tensor

        return map_tensors(inputs, narrow)


def in_little_memory(function: Callable[..., Any], inputs: Inputs) -> Answer:
    """`in_float64` where the whole does not fit: in blocks, else on the host.

    If neither works, the function's own result, and the reason as a gap.
    """
    from torch import OutOfMemoryError

    own = inputs.call(function)
    cut = _independent(function, inputs, own)
    if cut is not None:
        for pieces in PIECES:
            _release(inputs)
            try:
                return _in_pieces(function, inputs, own, cut, min(pieces, cut.size))
            except OutOfMemoryError:
                continue
    try:
        return _on_the_host(function, inputs)
    except TooLongError:
        why = f"the float64 answer does not fit, and took over {HOST_SECONDS:g} s on the host"
    except Exception as error:  # a function that needs its device
        why = f"the float64 answer does not fit, and not on the host: {type(error).__name__}"
    return Answer(map_tensors(own, lambda tensor: tensor.detach().to(wide(tensor.dtype))), gaps=(why,))


def _independent(function: Callable[..., Any], inputs: Inputs, own: Any) -> _Cut | None:
    """The first cut along which the function's results do not hang together; None if there is none."""
    results = list(tensors_in(own))
    for cut in _cuts(inputs):
        if not all(plain(one) and one.dim() > cut.axis and one.shape[cut.axis] == cut.size for one in results):
            continue
        if all(_same(function, inputs, results, cut, first, end) for first, end in _probes(cut.size)):
            return cut
    return None


def _cuts(inputs: Inputs) -> Iterator[_Cut]:
    tensors = list(tensors_in(inputs))
    if not tensors:
        return
    largest = max(range(len(tensors)), key=lambda place: tensors[place].numel())
    for axis, size in enumerate(tensors[largest].shape):
        if size < 2:
            continue
        fitting = [place for place, one in enumerate(tensors) if one.dim() > axis and one.shape[axis] == size]
        yield _Cut(axis, size, frozenset(fitting))
        if len(fitting) > 1:
            yield _Cut(axis, size, frozenset({largest}))


def _probes(size: int) -> list[tuple[int, int]]:
    """Parts at both ends and in the middle, of an eighth each and of one alone."""
    step = max(1, size // 8)
    middle = size // 2
    return [(0, step), (size - step, size), (middle, min(size, middle + step)), (middle, middle + 1)]


def _same(
    function: Callable[..., Any], inputs: Inputs, whole: list[torch.Tensor], cut: _Cut, first: int, end: int
) -> bool:
    try:
        found = list(tensors_in(cut.part(inputs, first, end).call(function)))
    except Exception:  # sizes that it does not take
        return False
    if len(found) != len(whole):
        return False
    for part, one in zip(found, whole, strict=True):
        expected = one.narrow(cut.axis, first, end - first)
        if part.shape != expected.shape or part.dtype is not expected.dtype:
            return False
        off, size = ((values.to(wide(values.dtype))).abs().double() for values in (part - expected, expected))
        if not float(off.nan_to_num(0.0).norm()) <= NEAR * float(size.nan_to_num(0.0).norm()):
            return False
    return True


def _in_pieces(function: Callable[..., Any], inputs: Inputs, own: Any, cut: _Cut, pieces: int) -> Answer:
    import torch

    def empty(tensor: torch.Tensor) -> torch.Tensor:
        return torch.empty(tensor.shape, dtype=wide(tensor.dtype), device=tensor.device)

    values = map_tensors(own, empty)
    into = list(tensors_in(values))
    gaps: dict[str, None] = {}
    random = False
    edges = [cut.size * number // pieces for number in range(pieces + 1)]
    for first, end in pairwise(edges):
        if first == end:
            continue
        found = in_float64(function, cut.part(inputs, first, end))
        for one, part in zip(into, tensors_in(found.values), strict=True):
            one.narrow(cut.axis, first, end - first).copy_(part)
        gaps |= dict.fromkeys(found.gaps)
        random |= found.random
    return Answer(values, tuple(gaps), random)


def _on_the_host(function: Callable[..., Any], inputs: Inputs) -> Answer:
    import torch

    device = next(tensors_in(inputs)).device
    there = function
    if isinstance(function, torch.nn.Module):
        there = copy.deepcopy(function).cpu()
    deadline = time.monotonic() + HOST_SECONDS
    found = in_float64(there, map_tensors(inputs, lambda tensor: tensor.cpu()), deadline=deadline)
    return Answer(map_tensors(found.values, lambda tensor: tensor.to(device)), found.gaps, found.random)


def _release(inputs: Inputs) -> None:
    import torch

    if any(tensor.is_cuda for tensor in tensors_in(inputs)):
        torch.cuda.empty_cache()
