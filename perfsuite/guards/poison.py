"""Filling memory with a recognisable NaN, so that what a kernel never wrote is seen as such.

`torch.empty` hands out what was freed last, and that may be the library's own answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perfsuite.problems.tensors import tensors_in

if TYPE_CHECKING:
    import torch

# One 16-bit pattern that is a quiet NaN with an unusual payload as float16 and as bfloat16, and, twice, as float32.
POISON_HALF = 0x7FE5
# Bytes of free memory that are poisoned at most: enough for the blocks that the allocator would hand out next.
MOST_BYTES = 1 << 30
# Cycles of a GPU that inputs come late: longer than a launch on another stream takes.
LATE_CYCLES = 400_000


def poison(value: Any) -> None:
    """Overwrite every tensor in `value`, whatever its dtype and strides, with the poison."""
    import torch

    for tensor in tensors_in(value):
        if tensor.is_complex():
            tensor = torch.view_as_real(tensor)
        size = tensor.element_size()
        if size == 1:
            tensor.view(torch.uint8).fill_(POISON_HALF & 0xFF)
        elif size == 2:
            tensor.view(torch.int16).fill_(POISON_HALF)
        elif size == 4:
            tensor.view(torch.int32).fill_(POISON_HALF << 16 | POISON_HALF)
        else:
            tensor.view(torch.int64).fill_(POISON_HALF << 48 | POISON_HALF << 32 | POISON_HALF << 16 | POISON_HALF)


def poison_free_memory(like: Any, *, copies: int = 4) -> None:
    """Poison memory that the allocator will hand out for tensors such as those in `like`.

    On a GPU the caching allocator gives a freed block of the same size back first. On a CPU it is the best that can be
    done: large blocks come from the system, zeroed.
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
    for one, _ in late:
        poison(one)
    torch.cuda.synchronize(pairs[0][0].device)
    torch.cuda._sleep(LATE_CYCLES)
    for one, other in late:
        one.copy_(other)
