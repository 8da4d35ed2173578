"""Fills memory with a recognisable NaN, which shows the values that a kernel did not write.

`torch.empty` returns the memory that was freed last, and that may hold the library's answer.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from perfsuite.problems.host_memory import FIRST, host_memory, in_view
from perfsuite.problems.tensors import memory_of, tensors_in, turned, turns

if TYPE_CHECKING:
    import torch

# A 16-bit pattern that is a quiet NaN with an unusual payload: as float16, as bfloat16 and, repeated, as float32.
POISON_HALF = 0x7FE5
# Most bytes of free memory to poison: enough for the blocks that the allocator would hand out next.
MOST_BYTES = 1 << 30
# The delay of late inputs, in GPU cycles: longer than a launch on another stream takes.
LATE_CYCLES = 400_000


def poison(value: Any) -> None:
    """Overwrite every tensor in `value`, whatever its dtype and strides, with the poison."""
    import torch

    pattern = POISON_HALF.to_bytes(2, "little") * 4
    integers = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    for tensor in tensors_in(value):
        tensor = turned(tensor, turns(tensor))  # the memory, without the marks of what reads it
        if tensor.is_complex():
            tensor = torch.view_as_real(tensor)
        size = tensor.element_size()
        memory_of(tensor.view(integers[size])).fill_(int.from_bytes(pattern[:size], "little"))


def poison_results(results: Sequence[Any], spare: Callable[[int], bool]) -> None:
    """Overwrite each result with the poison, but for those with a tensor at an address that `spare` names.

    Dozens of small results on the host come between two samples. Where these are alike, their bytes are written without
    torch.
    """
    import torch

    columns = _columns(results)
    sizes = [_bytes_of_each(column) for column in columns]
    places = [list(map(torch.Tensor.data_ptr, column)) for column in columns] if all(sizes) else []
    if not places or not all(map(in_view, places, sizes)):
        for one in results:
            if not any(spare(tensor.data_ptr()) for tensor in tensors_in(one) if tensor.numel()):
                poison(one)
        return
    if any(map(spare, itertools.chain(*places))):
        free = [row for row in zip(*places, strict=True) if not any(map(spare, row))]
        places = [list(column) for column in zip(*free, strict=True)]
    memory = host_memory()
    for column, size in zip(places, sizes, strict=False):
        pattern = _PATTERN[:size]
        for place in column:
            begin = place - FIRST
            memory[begin : begin + size] = pattern


def _columns(results: Sequence[Any]) -> list[Sequence[Any]]:
    """The results, or if each is a tuple of as many parts, the first part of each, the second of each, and so on."""
    if set(map(type, results)) != {tuple}:
        return [results]
    return list(zip(*results, strict=True)) if len(set(map(len, results))) == 1 else []


def _bytes_of_each(results: Sequence[Any]) -> int:
    """Bytes of each of these, if they are plain dense tensors of one size on the host, small enough; else 0."""
    import torch

    if set(map(type, results)) != {torch.Tensor} or set(map(_LAYOUT, results)) != {torch.strided}:
        return 0
    if len(facts := set(map(_FACTS, results))) != 1:
        return 0
    on_host, nested, item, size = facts.pop()
    small = on_host and not nested and item > 1 and size <= len(_PATTERN)
    return int(size) if small and all(map(torch.Tensor.is_contiguous, results)) else 0


_LAYOUT = operator.attrgetter("layout")
_FACTS = operator.attrgetter("is_cpu", "is_nested", "itemsize", "nbytes")
_PATTERN = memoryview(POISON_HALF.to_bytes(2, "little") * (1 << 16))


def poison_free_memory(like: Any, *, copies: int = 4) -> None:
    """Poison memory that the allocator will hand out for tensors such as those in `like`.

    A GPU's caching allocator first returns a freed block of the same size. On a CPU large blocks come zeroed from the
    system, so this covers only small ones.
    """
    import torch

    held: list[torch.Tensor] = []
    spent = 0
    for tensor in tensors_in(like):
        bytes_ = max(2, tensor.numel() * tensor.element_size())
        for _ in range(copies):
            if spent + bytes_ > MOST_BYTES and held:
                break
            held.append(torch.empty(-(-bytes_ // 2), dtype=torch.int16, device=tensor.device).fill_(POISON_HALF))
            spent += bytes_
    held.clear()


def arrive_late(inputs: Any, values: Any) -> None:
    """Fill `inputs` with `values` on the current stream of their GPU, some time after this returns; NaN until then.

    Work that does not wait for the current stream reads the NaN. Integers keep their values: they may be indices.
    """
    import torch

    pairs = [pair for pair in zip(tensors_in(inputs), tensors_in(values), strict=True) if pair[0].is_cuda]
    if not pairs:
        return
    late = [(one, other) for one, other in pairs if one.is_floating_point() and 0 not in one.stride()]
    poison([one for one, _ in late])
    torch.cuda.synchronize(pairs[0][0].device)
    torch.cuda._sleep(LATE_CYCLES)
    for one, other in late:
        one.copy_(other)
