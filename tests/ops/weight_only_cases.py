"""Random weights of 4 and 8 bits, and their products in float64 by the plain formula."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cuda_llm_ops
import torch
from torch import Tensor

ERROR = {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}
"""Rounding of a result, over its size."""


@dataclass(frozen=True)
class Case:
    """The arguments of a call; `right` and `size` are the product, and the same sums of magnitudes."""

    arguments: dict[str, Any]
    right: Tensor
    size: Tensor


def numbers(k: int, n: int, bits: int, generator: torch.Generator) -> Tensor:
    low, high = (0, 16) if bits == 4 else (-128, 128)
    return torch.randint(low, high, (k, n), generator=generator)


def packed(numbers: Tensor, bits: int) -> Tensor:
    if bits == 8:
        return cuda_llm_ops.pack_int8(numbers.to(torch.int8))
    return cuda_llm_ops.pack_int4((numbers[0::2] | numbers[1::2] << 4).to(torch.uint8))


def case(
    m: int, n: int, k: int, group: int, *, zeros: bool = False, dtype: torch.dtype = torch.float16, seed: int = 0
) -> Case:
    """group: 64 or 128 of 4 bits; 0 stands for 8 bits."""
    generator = torch.Generator().manual_seed(seed)
    bits = 4 if group else 8
    q = numbers(k, n, bits, generator)
    x = (torch.randn(m, k, generator=generator) * 2.0 ** torch.randint(-4, 5, (m, 1), generator=generator)).to(dtype)
    groups = k // group if group else 1
    octaves = torch.randint(-12, -5, (groups, n), generator=generator)
    scales = (torch.rand(groups, n, generator=generator) * 2.0**octaves).to(dtype)
    z = torch.randint(0, 16, (groups, n), generator=generator, dtype=torch.uint8) if zeros else None
    along = torch.full((groups, n), 8 if group else 0) if z is None else z
    spread = [one.repeat_interleave(k // groups, 0).double() for one in (along, scales)]
    weights = (q.double() - spread[0]) * spread[1]
    arguments = {"x": x, "packed": packed(q, bits), "scales": scales if group else scales[0], "zeros": z}
    return Case(arguments, x.double() @ weights, x.double().abs() @ weights.abs())


def on(device: str, case: Case) -> dict[str, Any]:
    return {name: one if one is None else one.to(device) for name, one in case.arguments.items()}


def assert_right(out: Tensor, case: Case) -> None:
    """Sums in float32, and one rounding: float16 also has subnormal results."""
    error = (out.cpu().double() - case.right).abs()
    allowed = ERROR[out.dtype] * case.right.abs() + 2.0**-20 * case.size + 2.0**-25
    worst = (error / allowed).max() if out.numel() else torch.zeros(())
    assert worst <= 1, f"an error is {float(worst):.3g} times what is allowed"
