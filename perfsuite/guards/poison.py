"""Fills memory with a recognisable NaN, which shows the values that a kernel did not write.

`torch.empty` returns the memory that was freed last, and that may hold the library's answer.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from perfsuite.problems.tensors import memory_of, tensors_in

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
        if tensor.is_complex():
            tensor = torch.view_as_real(tensor)
        size = tensor.element_size()
        memory_of(tensor.view(integers[size])).fill_(int.from_bytes(pattern[:size], "little"))


def poison_results(results: Iterable[Any], spare: Callable[[int], bool]) -> None:
    """Overwrite each result with the poison, but for those with a tensor at an address that `spare` names.

    Dozens of small results on the host come between two samples. Of these the bytes are written without torch.
    """
    import torch

    plain, strided, pattern, most, write = torch.Tensor, torch.strided, _PATTERN, len(_PATTERN), ctypes.memmove
    for one in results:
        if type(one) is plain and one.layout is strided and one.is_cpu and not one.is_nested and one.is_contiguous():
            place, size = one.data_ptr(), one.nbytes
            if place and size <= most and one.element_size() > 1:
                if not spare(place):
                    write(place, pattern, size)
                continue
        if not any(spare(tensor.data_ptr()) for tensor in tensors_in(one) if tensor.numel()):
            poison(one)


_PATTERN = POISON_HALF.to_bytes(2, "little") * (1 << 16)


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
