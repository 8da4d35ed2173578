"""Products with weights of 4 or 8 bits that are widened as they are read, and the packing of such weights."""

from __future__ import annotations

import torch
from torch import Tensor

from . import fakes_weight_only as fakes_weight_only  # registers the fake kernel
from .errors import translated
from .ops import _refuse_gradients

_weight_only_gemm = torch.ops.cuda_llm_ops.weight_only_gemm.default

TILE_COLUMNS, TILE_DEPTH = 16, 64


def weight_only_gemm(x: Tensor, packed: Tensor, scales: Tensor, zeros: Tensor | None = None) -> Tensor:
    """x times the weights (q - zeros) · scales, which exist in registers only; sums are float32.

    Numbers less their zero points are multiplied exactly, and a group's sum is multiplied by its scale in float32. No
    weight is rounded to 16 bits.

    Args:
        x: (m, k), float16 or bfloat16; k is a multiple of 64, and of the group.
        packed: the numbers, as `pack_int4` and `pack_int8` make them of (k, n).
        scales: of x's dtype. 4 bits: (k / 64, n) or (k / 128, n), which says how long groups are. 8 bits: (n,).
        zeros: with 4 bits, the number that stands for 0 in each group: uint8, 0 to 15, of scales' shape. None: 8.

    On a GPU, rows of x that begin at no multiple of 16 bytes are copied first. Values of zeros are not checked: their
    low four bits count.

    Returns:
        (m, n), contiguous, of x's dtype.

    Raises:
        TypeError: an argument is no tensor, or of a dtype that is not supported.
        ValueError: rank, sizes or devices do not fit, or zeros are given with 8 bits.
        NotImplementedError: an input requires grad, a tensor is not strided, or its device has no kernel in this build.
        torch.OutOfMemoryError: the output or the workspace cannot be allocated.
    """
    try:
        _refuse_gradients("weight_only_gemm", x=x, scales=scales)
        return _weight_only_gemm(x, packed, scales, zeros)
    except (RuntimeError, AttributeError) as error:
        tensors = {"x": x, "packed": packed, "scales": scales, "zeros": zeros}
        raise translated("weight_only_gemm", error, tensors, {}) from None


def pack_int4(pairs: Tensor) -> Tensor:
    """The form that `weight_only_gemm` reads, of numbers 0 to 15, two along k in a byte.

    Args:
        pairs: (k / 2, n), uint8: byte (i, j) holds number (2i, j) in its low four bits and (2i + 1, j) in its high.

    Returns:
        (n / 16 rounded up, k / 64, 512), uint8; ext/csrc/weight_only.h defines it. Columns behind n are zeros.

    Raises:
        TypeError, ValueError: dtype or shape do not fit.
    """
    _check("pack_int4", "pairs", pairs, torch.uint8, TILE_DEPTH // 2)
    tiles = _tiles(torch.stack([pairs & 15, pairs >> 4], 1).flatten(0, 1))
    # Of a tile: (half of columns, column of 8, step of k, half of step, lane of 4, low or high) in nibble order.
    nibbles = tiles.permute(0, 1, 3, 6, 4, 7, 5, 2).reshape(*tiles.shape[:2], 1024)
    low, high = nibbles.unflatten(-1, (-1, 2)).unbind(-1)
    return low | high << 4


def pack_int8(numbers: Tensor) -> Tensor:
    """The form that `weight_only_gemm` reads, of signed numbers (k, n), int8: (n / 16 rounded up, k / 64, 1024), uint8.

    Raises:
        TypeError, ValueError: dtype or shape do not fit.
    """
    _check("pack_int8", "numbers", numbers, torch.int8, TILE_DEPTH)
    tiles = _tiles(numbers.view(torch.uint8)).unflatten(4, (2, 2))
    return tiles.permute(0, 1, 4, 3, 7, 5, 6, 8, 2).reshape(*tiles.shape[:2], 1024)


def _tiles(numbers: Tensor) -> Tensor:
    """(k, n) as (tile of n, tile of k, half of 16, column of 8, step of 16 of k, half of it, pair of 4, one of 2)."""
    k, n = numbers.shape
    padded = torch.nn.functional.pad(numbers, (0, -n % TILE_COLUMNS))
    columns = padded.T.reshape(-1, 2, 8, k // TILE_DEPTH, 4, 2, 4, 2)
    return columns.permute(0, 3, 1, 2, 4, 5, 6, 7)


def _check(op: str, name: str, numbers: Tensor, dtype: torch.dtype, depth: int) -> None:
    if not isinstance(numbers, Tensor):
        raise TypeError(f"{op}: {name} is of type {type(numbers).__name__}; it must be a torch.Tensor")
    if numbers.dtype != dtype:
        raise TypeError(f"{op}: {name} is {numbers.dtype}; it must be {dtype}")
    if numbers.dim() != 2 or numbers.shape[0] % depth or 0 in numbers.shape:
        raise ValueError(
            f"{op}: {name} has shape {tuple(numbers.shape)}; it must have 2 sizes above 0, the first a multiple of "
            f"{depth} (64 of k)"
        )
