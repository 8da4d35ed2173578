"""Quantised caches: 8-bit numbers and their scales, from real values, and back.

A value is its scale times a number. The right answer of a problem is computed on the values that the numbers and scales
give, so that a kernel's own error is seen and not the quantiser's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

CACHE_DTYPES = {"float8_e4m3fn": 448.0, "int8": 127.0}
"""Dtype of a cache -> the largest number that a quantiser makes."""
CACHE_SCALES = ("cache", "head", "token")
"""The values that share a scale: the whole cache, a kv head, or the head_dim values of one token and kv head."""

_ZERO_TOKENS = 16
_OCTAVES = 6.0
_CLIPPED = 0.02


def quantise(values: torch.Tensor, dtype: str, scales: str, heads: int) -> tuple[torch.Tensor, torch.Tensor]:
    """(numbers, scales) of a cache, whose last axis is head_dim and whose axis `heads` is that of the kv heads.

    A scale brings the largest value that shares it to the largest number. It is 0 where all of them are 0, as are the
    numbers. Scales are float32: without dimensions, (kv_heads,), or the shape of `values` without head_dim.
    """
    import torch

    top = CACHE_DTYPES[dtype]
    wide = values.float()
    size = wide.abs()
    if scales == "cache":
        scale = size.amax() / top
        along = scale
    elif scales == "head":
        scale = size.amax([axis for axis in range(size.dim()) if axis != heads]) / top
        along = scale.view([-1 if axis == heads else 1 for axis in range(size.dim())])
    else:
        scale = size.amax(-1) / top
        along = scale[..., None]
    numbers = torch.where(along > 0, wide / along, 0.0).clamp_(-top, top)
    return (numbers.round_() if dtype == "int8" else numbers).to(getattr(torch, dtype)), scale


def saturate(numbers: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """`numbers` of a cache, where one token in fifty has the largest number, or its negative, throughout."""
    import torch

    top = CACHE_DTYPES[str(numbers.dtype).removeprefix("torch.")]
    share = torch.rand(numbers.shape[:-1], generator=generator, device=numbers.device)[..., None]
    wide = numbers.float()
    return torch.where(share < _CLIPPED, torch.where(wide < 0, -top, top), wide).to(numbers.dtype)


def uneven(values: torch.Tensor, tokens: int, generator: torch.Generator, *, spread: bool) -> torch.Tensor:
    """`values` of a cache with sixteen tokens of zeros at a random place; with `spread`, tokens of 2^-6 to 2^6 times
    the size, so that their scales differ as much.

    tokens: the axis of the tokens.
    """
    import torch

    shape = [1] * values.dim()
    count = shape[tokens] = values.shape[tokens]
    first = int(torch.randint(max(1, count - _ZERO_TOKENS), (), generator=generator, device=values.device))
    factor = torch.ones(count, device=values.device)
    if spread:
        share = torch.rand(count, generator=generator, device=values.device)
        factor = (_OCTAVES * (2.0 * share - 1.0)).exp2_()
    if count > _ZERO_TOKENS:
        factor[first : first + _ZERO_TOKENS] = 0.0
    return values.float() * factor.view(shape)


def dequantised(numbers: torch.Tensor, scales: torch.Tensor, heads: int, dtype: torch.dtype) -> torch.Tensor:
    """The values, computed in `dtype`; scales as `quantise` makes them, or already of numbers' rank.

    heads: the axis of the kv heads in `numbers`.
    """
    import torch

    # float8 converts to few types directly; float32 holds every number exactly.
    values = numbers.float().to(dtype) if numbers.dtype != torch.int8 else numbers.to(dtype)
    if scales.dim() == 1:
        scales = scales.view([-1 if axis == heads else 1 for axis in range(numbers.dim())])
    elif scales.dim() == numbers.dim() - 1:
        scales = scales[..., None]
    return values * scales.to(dtype)
