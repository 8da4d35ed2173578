"""Weights of 4 and 8 bits: drawn, quantised, in the form in which a kernel reads them, and back.

A value is (number - zero point) times its scale. The right answer is that on these values, so that a kernel's own error
is seen and not the quantiser's, which `signal_to_noise` gives.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfsuite.problems.distributions import draw

if TYPE_CHECKING:
    import torch

WEIGHT_GROUPS = (64, 128)
"""Neighbours along k that share a scale, of 4-bit weights."""
TILE_COLUMNS, TILE_DEPTH = 16, 64

_OCTAVES = 6.0
_ZERO_SHARE, _OUTLIERS, _OUTLIER, _CLIPPED = 0.1, 0.01, 32.0, 0.02


def weights_drawn(distribution: str, k: int, n: int, group: int, generator: torch.Generator) -> torch.Tensor:
    """Real weights (k, n) in float32.

    All but ordinary ones have scales of 2^-6 to 2^6 times the size, one group in ten of zeros, and rows of outliers.
    """
    import torch

    values = draw(distribution, (k, n), torch.float32, generator, role="b", axis=0) / k**0.5
    if distribution == "normal":
        return values
    device = generator.device
    shape = (-(-k // group), n)
    size = torch.rand(shape, generator=generator, device=device).mul_(2.0).sub_(1.0).mul_(_OCTAVES).exp2_()
    size.masked_fill_(torch.rand(shape, generator=generator, device=device) < _ZERO_SHARE, 0.0)
    outliers = torch.rand((k, 1), generator=generator, device=device) < _OUTLIERS
    return values * size.repeat_interleave(group, 0)[:k] * torch.where(outliers, _OUTLIER, 1.0)


def quantised_weights(
    values: torch.Tensor, bits: int, group: int, zeros: bool, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """(numbers, scales, zero points) of values (k, n); uint8 numbers with 4 bits, int8 ones with 8.

    4 bits: scales (k / group, n). 8 bits: scales (n,), no zero points. Scales are rounded to `dtype`; one that is 0
    there has numbers that stand for 0.
    """
    import torch

    if bits == 8:
        scales = (values.abs().amax(0) / 127.0).to(dtype)
        wide = torch.where(scales > 0, values / scales.float(), 0.0)
        return wide.round_().clamp_(-127, 127).to(torch.int8), scales, None
    grouped = values.unflatten(0, (-1, group))
    if zeros:
        low, high = grouped.amin(1).clamp_(max=0.0), grouped.amax(1).clamp_(min=0.0)
        scales = ((high - low) / 15.0).to(dtype)
        points = torch.where(scales > 0, -low / scales.float(), 8.0).round_().clamp_(0, 15)
    else:
        scales = (grouped.abs().amax(1) / 7.5).to(dtype)
        points = torch.full_like(scales, 8.0, dtype=torch.float32)
    wide = torch.where(scales[:, None] > 0, grouped / scales[:, None].float(), 0.0) + points[:, None]
    numbers = wide.round_().clamp_(0, 15).to(torch.uint8).flatten(0, 1)
    return numbers, scales, points.to(torch.uint8) if zeros else None


def saturated_weights(numbers: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """`numbers`, where one row in fifty has the largest or the smallest number throughout."""
    import torch

    low, high = (-127, 127) if numbers.dtype == torch.int8 else (0, 15)
    share = torch.rand((len(numbers), 1), generator=generator, device=numbers.device)
    clipped = torch.where(numbers.int() * 2 < low + high, low, high).to(numbers.dtype)
    return torch.where(share < _CLIPPED, clipped, numbers)


def weights_of(
    numbers: torch.Tensor, scales: torch.Tensor, zeros: torch.Tensor | None, dtype: torch.dtype
) -> torch.Tensor:
    """The values (k, n), computed in `dtype`; 4-bit numbers are uint8."""
    import torch

    if numbers.dtype == torch.int8:
        return numbers.to(dtype) * scales.to(dtype)
    grouped = numbers.to(dtype).unflatten(0, (len(scales), -1))
    points = 8.0 if zeros is None else zeros.to(dtype)[:, None]
    return ((grouped - points) * scales.to(dtype)[:, None]).flatten(0, 1)


def signal_to_noise(values: torch.Tensor, again: torch.Tensor) -> float:
    """Decibels by which real weights exceed what quantisation changed in them."""
    import torch

    noise = (values.double() - again.double()).square().sum()
    return float(10.0 * torch.log10(values.double().square().sum() / noise)) if noise > 0 else float("inf")


def packed_tiles(numbers: torch.Tensor) -> torch.Tensor:
    """Numbers (k, n) as the tiles that `cuda_llm_ops.weight_only_gemm` reads, defined in ext/csrc/weight_only.h."""
    import torch

    k, n = numbers.shape
    four = numbers.dtype == torch.uint8
    padded = torch.nn.functional.pad(numbers.view(torch.uint8), (0, -n % TILE_COLUMNS))
    tiles = padded.T.reshape(-1, 2, 8, k // TILE_DEPTH, 2, 2, 2, 4, 2)
    # Axes: tile of n, half of 16, column of 8, tile of k, half of 64, half of 32, half of 16, pair of 4, one of 2.
    if not four:
        return tiles.permute(0, 3, 4, 2, 7, 5, 6, 8, 1).reshape(tiles.shape[0], k // TILE_DEPTH, 1024)
    nibbles = tiles.permute(0, 3, 2, 7, 4, 5, 8, 6, 1).reshape(tiles.shape[0], k // TILE_DEPTH, 512, 2)
    return nibbles[..., 0] | nibbles[..., 1] << 4


def unpacked_tiles(tiles: torch.Tensor, n: int) -> torch.Tensor:
    """The numbers (k, n) of packed tiles: uint8 of 4 bits, int8 of 8."""
    import torch

    count, depth, size = tiles.shape
    if size == 1024:
        axes = tiles.reshape(count, depth, 2, 8, 4, 2, 2, 2, 2).permute(1, 2, 5, 6, 4, 7, 0, 8, 3)
        return axes.reshape(depth * TILE_DEPTH, count * TILE_COLUMNS)[:, :n].contiguous().view(torch.int8)
    nibbles = torch.stack([tiles & 15, tiles >> 4], -1)
    axes = nibbles.reshape(count, depth, 8, 4, 2, 2, 2, 2, 2).permute(1, 4, 5, 7, 3, 6, 0, 8, 2)
    return axes.reshape(depth * TILE_DEPTH, count * TILE_COLUMNS)[:, :n].contiguous()
