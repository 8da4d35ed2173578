"""Fills memory with a recognisable NaN, which shows the values that a kernel did not write.

`torch.empty` returns the memory that was freed last, and that may hold the library's answer.
"""

from __future__ import annotations

import ctypes
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
        size = tensor.element_size()
        # Byte by byte as below. Dozens of small results come between two samples, and each call of torch takes longer.
        if size > 1 and tensor.nbytes <= len(_PATTERN) and _is_a_stretch_of_the_host(tensor):
            ctypes.memmove(tensor.data_ptr(), _PATTERN, tensor.nbytes)
            continue
        if tensor.is_complex():
            tensor = torch.view_as_real(tensor)
            size = tensor.element_size()
        memory_of(tensor.view(integers[size])).fill_(int.from_bytes(pattern[:size], "little"))


_PATTERN = POISON_HALF.to_bytes(2, "little") * (1 << 16)


def _is_a_stretch_of_the_host(tensor: torch.Tensor) -> bool:
    """True if the elements of a tensor are one stretch of the host's memory."""
    import torch

    plain = type(tensor) is torch.Tensor and tensor.is_cpu and tensor.layout is torch.strided
    return plain and tensor.is_contiguous() and tensor.data_ptr() != 0


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
