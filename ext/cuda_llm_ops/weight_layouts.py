"""Weights of 4 bits from the layouts in which they are published, GPTQ's and AWQ's.

Each converter returns (pairs, scales, zeros): `pairs` is what `pack_int4` takes, the others what `weight_only_gemm`
takes.
"""

from __future__ import annotations

import torch
from torch import Tensor

AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
"""Nibble of a word of AWQ -> which of its eight columns it holds."""

Converted = tuple[Tensor, Tensor, Tensor]


def from_gptq(
    qweight: Tensor, qzeros: Tensor, scales: Tensor, g_idx: Tensor | None = None, *, zeros_less_one: bool = True
) -> Converted:
    """From GPTQ's layout.

    Args:
        qweight: (k / 8, n), int32: eight numbers along k in a word, the lowest bits first.
        qzeros: (groups, n / 8), int32: eight zero points along n in a word.
        scales: (groups, n).
        g_idx: (k,), the group of each row; rows must not be reordered.
        zeros_less_one: stored zero points are one less than the number that stands for 0, as in files of version 1. A
            stored 15 then means 16, which 4 bits cannot hold: refused.
    """
    words = _words("from_gptq", "qweight", qweight)
    zeros = _nibbles(_words("from_gptq", "qzeros", qzeros)).flatten(-2)
    k, n = 8 * words.shape[0], words.shape[1]
    _check_groups("from_gptq", scales, zeros, k, n)
    if g_idx is not None:
        plain = torch.arange(k, device=g_idx.device) // (k // scales.shape[0])
        if not torch.equal(g_idx.to(plain.dtype), plain):
            raise ValueError("from_gptq: g_idx reorders the rows; it must be k // group, as without act-order")
    if zeros_less_one:
        zeros = zeros + 1
        if bool((zeros > 15).any()):
            raise ValueError("from_gptq: qzeros holds 15, one less than 16; zero points must be at most 15")
    # (k / 8, n, 8) -> (k, n)
    numbers = _nibbles(words).movedim(-1, 1).flatten(0, 1)
    return _pairs(numbers), scales, zeros.to(torch.uint8)


def from_awq(qweight: Tensor, qzeros: Tensor, scales: Tensor) -> Converted:
    """From AWQ's layout: qweight (k, n / 8) and qzeros (groups, n / 8), int32.

    A word holds eight columns, in AWQ_ORDER.
    """
    order = torch.tensor(AWQ_ORDER, device=qweight.device).argsort()
    numbers = _nibbles(_words("from_awq", "qweight", qweight))[..., order].flatten(-2)
    zeros = _nibbles(_words("from_awq", "qzeros", qzeros))[..., order].flatten(-2)
    _check_groups("from_awq", scales, zeros, *numbers.shape)
    return _pairs(numbers), scales, zeros.to(torch.uint8)


def _words(op: str, name: str, words: Tensor) -> Tensor:
    if words.dtype != torch.int32:
        raise TypeError(f"{op}: {name} is {words.dtype}; it must be torch.int32")
    if words.dim() != 2:
        raise ValueError(f"{op}: {name} has {words.dim()} dimensions; it must have 2")
    return words


def _nibbles(words: Tensor) -> Tensor:
    """The eight numbers of each word, along a new last dimension."""
    return words[..., None] >> torch.arange(0, 32, 4, device=words.device, dtype=torch.int32) & 15


def _pairs(numbers: Tensor) -> Tensor:
    if numbers.shape[0] % 2:
        raise ValueError(f"the weights have {numbers.shape[0]} rows; k must be even")
    return (numbers[0::2] | numbers[1::2] << 4).to(torch.uint8)


def _check_groups(op: str, scales: Tensor, zeros: Tensor, k: int, n: int) -> None:
    if scales.dim() != 2 or scales.shape != zeros.shape or scales.shape[1] != n or k % scales.shape[0]:
        raise ValueError(
            f"{op}: scales has shape {tuple(scales.shape)} and qzeros holds {tuple(zeros.shape)}, with weights "
            f"{(k, n)}; both must be (groups, {n}), with groups that divide {k}"
        )
