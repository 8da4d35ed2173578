"""Operands of FP8 products: 8-bit numbers with scales, hard values for them, and products that serve as yardsticks.

A value is its scale times a number. The right answer is that on the values which numbers and scales give, so that a
kernel's own error is seen and not the quantiser's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfsuite.problems.distributions import draw

if TYPE_CHECKING:
    import torch

FP8_DTYPES = {"float8_e4m3fn": 448.0, "float8_e5m2": 57344.0}
"""Dtype of an operand -> its largest number."""
FP8_OUT_DTYPES = ("bfloat16", "float16", "float32")
FP8_SCALES = ("tensor", "row", "block")
"""Values that share a scale: an operand (or a group's weight), a row of it, or blocks. Blocks are 1 x 128 of `a` and
128 x 128 of `b`."""
BLOCK = 128

_OCTAVES = 6.0
_ZERO_SHARE, _CLIPPED, _CHANGED = 0.1, 0.02, 0.125
_ALIGNED = 16


def blocks(size: int) -> int:
    """Blocks of 128 that `size` elements fill, the last one perhaps in part."""
    return -(-size // BLOCK)


def values_drawn(distribution: str, shape: tuple[int, ...], role: str, generator: torch.Generator) -> torch.Tensor:
    """Real values (..., rows, k) of operand `role`, "a" or "b", in float32.

    All but ordinary ones have rows of 2^-6 to 2^6 times the size, so that their scales differ as much, and blocks of
    zeros. "cancellation": the second half of k takes away what the first half added, but for an eighth of it. So a sum
    in few bits keeps the error of its largest value.
    """
    import torch

    if distribution == "cancellation":
        half = shape[-1] // 2
        values = draw("normal", shape, torch.float32, generator, role=role).abs_()
        again = values[..., :half]
        if role == "b":
            share = torch.rand(again.shape, generator=generator, device=generator.device)
            other = draw("normal", tuple(again.shape), torch.float32, generator, role=role).abs_()
            again = torch.where(share < _CHANGED, other, again)
        values[..., half : 2 * half] = -again if role == "a" else again
        return values
    values = draw(distribution, shape, torch.float32, generator, role=role)
    if distribution == "normal":
        return values
    size = torch.rand((*shape[:-1], 1), generator=generator, device=generator.device)
    values *= (_OCTAVES * (2.0 * size - 1.0)).exp2_()
    zero = torch.rand((*shape[:-1], blocks(shape[-1])), generator=generator, device=generator.device) < _ZERO_SHARE
    return values.masked_fill_(zero.repeat_interleave(BLOCK, -1)[..., : shape[-1]], 0.0)


def quantised(
    values: torch.Tensor, dtype: str, scales: str, height: int, *, grouped: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """(numbers, scales) of values (..., rows, k); a block has `height` rows.

    A scale brings the largest value that shares it to the largest number, and is 0 where all of them are 0. Scales of
    blocks 1 x 128 have stride 1 along rows, as torch and cuBLASLt want them. grouped: a scale for each first index.
    """
    import torch

    top = FP8_DTYPES[dtype]
    if scales == "tensor":
        scale = (values.abs().amax((-2, -1)) if grouped else values.abs().amax()) / top
    elif scales == "row":
        scale = values.abs().amax(-1) / top
    else:
        rows, k = values.shape[-2:]
        padded = torch.nn.functional.pad(values.abs(), (0, -k % BLOCK, 0, -rows % height))
        scale = padded.unflatten(-1, (-1, BLOCK)).amax(-1).unflatten(-2, (-1, height)).amax(-2) / top
        if height == 1:
            scale = scale.mT.contiguous().mT
    along = spread(scale, values, height)
    numbers = torch.where(along > 0, values / along, 0.0).clamp_(-top, top)
    return numbers.to(getattr(torch, dtype)), scale


def saturated(numbers: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """`numbers`, where one row in fifty has the largest number, or its negative, throughout."""
    import torch

    top = torch.finfo(numbers.dtype).max
    share = torch.rand((*numbers.shape[:-1], 1), generator=generator, device=numbers.device)
    wide = numbers.float()
    return torch.where(share < _CLIPPED, torch.where(wide < 0, -top, top), wide).to(numbers.dtype)


def spread(scale: torch.Tensor, numbers: torch.Tensor, height: int) -> torch.Tensor:
    """A scale for each number, or one that broadcasts to it."""
    if scale.dim() < numbers.dim():
        return scale[(..., *(None,) * (numbers.dim() - scale.dim()))] if scale.dim() else scale
    wide = scale.repeat_interleave(BLOCK, -1)[..., : numbers.shape[-1]]
    return wide.repeat_interleave(height, -2)[..., : numbers.shape[-2], :] if height > 1 else wide


def values_of(numbers: torch.Tensor, scale: torch.Tensor, height: int, dtype: torch.dtype) -> torch.Tensor:
    """The values, computed in `dtype`."""
    return numbers.to(dtype) * spread(scale, numbers, height).to(dtype)


def promoted(
    a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor, out_dtype: torch.dtype
) -> torch.Tensor:
    """The product by torch's own, 128 of k at a time, which are added up in float32.

    This is as exact as sums of a tensor core can be that are promoted every 128 of k. A CPU adds in float32 throughout.
    """
    import torch

    sums = torch.zeros((a.shape[0], b.shape[0]), device=a.device)
    along_k = scale_a.dim() == 2
    for block in range(blocks(a.shape[1])):
        some = slice(block * BLOCK, (block + 1) * BLOCK)
        part = _product(a[:, some], b[:, some])
        if along_k:
            part *= scale_a[:, block, None] * scale_b[:, block].repeat_interleave(BLOCK)[: b.shape[0]]
        sums += part
    if not along_k:
        sums *= spread(scale_a, sums, 1) * scale_b
    return sums.to(out_dtype)


def _product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """a times b transposed, of numbers without scales, in float32. cuBLAS wants sizes that are multiples of 16."""
    import torch

    if a.device.type == "cpu":
        return a.float() @ b.float().T
    left, right = (
        torch.nn.functional.pad(one.view(torch.uint8), (0, -one.shape[1] % _ALIGNED, 0, -one.shape[0] % _ALIGNED)).view(
            one.dtype
        )
        for one in (a, b)
    )
    scale = torch.ones((), device=a.device)
    out = torch._scaled_mm(left, right.T, scale, scale, out_dtype=torch.float32, use_fast_accum=False)
    return out[: a.shape[0], : b.shape[0]]


def in_bfloat16(
    a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor, out_dtype: torch.dtype
) -> torch.Tensor:
    """torch's product of the values rounded to bfloat16: the precision that fast sums are held to."""
    import torch

    left, right = (
        values_of(one, scale, height, torch.float32).bfloat16()
        for one, scale, height in ((a, scale_a, 1), (b, scale_b, BLOCK))
    )
    return (left @ right.T).to(out_dtype)
