"""Random FP8 operands with scales of every kind, and their product in float64 by plain formulas."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

SCALES = ("tensor", "row", "mixed", "block")
OUT = (torch.float32, torch.bfloat16, torch.float16)
PROMISED_BITS = 8.96
"""0.2 % of the sum of magnitudes."""


def values(numbers: Tensor, scale: Tensor, height: int) -> Tensor:
    """scale times number, in float64; `height` rows share the scale of a block."""
    wide = numbers.cpu().double()
    spread = scale.cpu().double()
    if spread.dim() == wide.dim():
        spread = spread.repeat_interleave(128, -1)[..., : wide.shape[-1]]
        spread = spread.repeat_interleave(height, -2)[..., : wide.shape[-2], :]
    elif spread.dim():
        spread = spread[(..., *(None,) * (wide.dim() - spread.dim()))]
    return wide * spread


@dataclass(frozen=True)
class Case:
    """The arguments of a call; `right` and `size` are the product, and the same sums of magnitudes."""

    arguments: dict[str, Any]
    right: Tensor
    size: Tensor


def numbers(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator, padding: int = 0) -> Tensor:
    """Of all magnitudes; with `padding`, rows are that much farther apart than they are long."""
    *lead, k = shape
    drawn = torch.randn((*lead, k + padding), generator=generator)
    spread = torch.randint(-4, 5, (*lead, k + padding), generator=generator)
    return (drawn * 2.0**spread).to(dtype)[..., :k]


def scale(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    return torch.randint(-6, 7, shape, generator=generator).float().exp2() * (
        1 + torch.rand(shape, generator=generator)
    )


def gemm(
    m: int, n: int, k: int, kind: str, seed: int = 0, *, dtype: torch.dtype = torch.float8_e4m3fn, **options: Any
) -> Case:
    generator = torch.Generator().manual_seed(seed)
    padding = options.pop("padding", 0)
    a, b = numbers((m, k), dtype, generator, padding), numbers((n, k), torch.float8_e4m3fn, generator, padding)
    blocks = -(-k // 128)
    of_a, of_b = {
        "tensor": ((), ()),
        "row": ((m,), (n,)),
        "mixed": ((m,), ()),
        "block": ((m, blocks), (-(-n // 128), blocks)),
    }[kind]
    scale_a, scale_b = scale(of_a, generator), scale(of_b, generator)
    left, right = values(a, scale_a, 1), values(b, scale_b, 128)
    exact, size = left @ right.T, left.abs() @ right.abs().T
    arguments = {"a": a, "b": b, "scale_a": scale_a, "scale_b": scale_b, **options}
    if options.get("bias"):
        bias = torch.randn(n, generator=generator).to(options.get("out_dtype", torch.bfloat16))
        arguments["bias"], exact, size = bias, exact + bias.double(), size + bias.double().abs()
    return Case(arguments, exact, size)


def grouped(
    sizes: list[int], n: int, k: int, kind: str, seed: int = 0, *, capacity: int | None = None, spare: int = 0
) -> Case:
    """Contiguous groups, with `spare` rows behind the last; or masked ones of `capacity` rows."""
    generator = torch.Generator().manual_seed(seed)
    count, blocks = len(sizes), -(-k // 128)
    lead = (sum(sizes) + spare,) if capacity is None else (count, capacity)
    a, b = (numbers((*shape, k), torch.float8_e4m3fn, generator) for shape in (lead, (count, n)))
    of_a, of_b = {
        "tensor": ((), (count,)),
        "row": (lead, (count, n)),
        "mixed": (lead, ()),
        "block": ((*lead, blocks), (count, -(-n // 128), blocks)),
    }[kind]
    scale_a, scale_b = scale(of_a, generator), scale(of_b, generator)
    left, right = values(a, scale_a, 1), values(b, scale_b, 128)
    exact, size = torch.zeros((*lead, n), dtype=torch.float64), torch.zeros((*lead, n), dtype=torch.float64)
    first = 0
    for group, rows in enumerate(sizes):
        where: Any = slice(first, first + rows) if capacity is None else (group, slice(0, rows))
        exact[where] = left[where] @ right[group].T
        size[where] = left[where].abs() @ right[group].abs().T
        first += rows
    groups = torch.tensor(sizes, dtype=torch.int32)
    groups = groups.cumsum(0, dtype=torch.int32) if capacity is None else groups
    return Case({"a": a, "b": b, "scale_a": scale_a, "scale_b": scale_b, "groups": groups}, exact, size)


def on(device: str, case: Case) -> dict[str, Any]:
    moved = {}
    for name, value in case.arguments.items():
        # Tensor.to makes a padded operand dense
        if isinstance(value, Tensor) and value.device.type != device and not value.is_contiguous():
            whole = value.as_strided((*value.shape[:-1], value.stride(-2)), value.stride())
            moved[name] = whole.to(device)[..., : value.shape[-1]]
        else:
            moved[name] = value.to(device) if isinstance(value, Tensor) else value
    return moved


def assert_right(found: Tensor, case: Case, bits: float | None = None) -> None:
    """Within 2^-bits of the sum of magnitudes, besides the rounding of the result.

    By default 15.9 bits of a CPU, where a sum in float32 has at most 256 + k / 256 roundings of 2^-24, and the 0.2 %
    that `fp8_gemm` promises of sums that a tensor core forms and that are promoted. It cuts each of 32 products off at
    2^-13 of the largest, in up to four steps before a promotion. The largest error seen on an H200 was 0.13 %.
    """
    bits = bits or (15.9 if found.device.type == "cpu" else PROMISED_BITS)
    eps = torch.finfo(found.dtype).eps if found.dtype != torch.float32 else 0.0
    error = (found.cpu().double() - case.right).abs()
    largest = torch.finfo(found.dtype).max
    allowed = case.right.abs() * eps * 0.51 + case.size * 2.0**-bits + torch.finfo(found.dtype).tiny
    # So near to the largest number, a sum may also be rounded to infinity.
    wrong = ~(error <= allowed) & (case.right.abs() + allowed < largest)  # NaN is wrong too
    assert found.shape == case.right.shape
    assert not wrong.any(), (
        f"{int(wrong.sum())} wrong, worst {float((error / allowed)[wrong].max()):.3g} times what is allowed"
    )
