"""Products of 16-bit rows with weights of 4 or 8 bits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from perfsuite.problems.base import Inputs, Problem
from perfsuite.problems.checks import HALF_DTYPES, ITEM_BYTES, dtype_name, flag, positive, torch_dtype
from perfsuite.problems.distributions import draw
from perfsuite.problems.exact import MOST_COLUMNS, MOST_ROWS, running, spread
from perfsuite.problems.weights import (
    TILE_DEPTH,
    WEIGHT_GROUPS,
    packed_tiles,
    quantised_weights,
    saturated_weights,
    signal_to_noise,
    unpacked_tiles,
    weights_drawn,
    weights_of,
)

if TYPE_CHECKING:
    import torch

BITS = (4, 8)
COLUMNS_AT_ONCE = 1024


@dataclass(frozen=True)
class WeightOnlyGemm(Problem):
    """x (m, k) times weights (k, n) = (number - zero point) · scale; sums are float32.

    bits: 4, with a scale for each `group` of 64 or 128 along k; or 8, signed, with a scale a column and no zero points.
    zeros: zero points are given, 0 to 15; else 8 stands for 0.
    Candidates are called `f(x, packed, scales)`, or `f(x, packed, scales, zeros)`. `packed` has the form that
    `cuda_llm_ops.pack_int4` and `pack_int8` make. The right answer is that on the values which numbers, zero points
    and scales give, so that what quantisation changed is no error of a kernel.
    """

    family: ClassVar[str] = "weight-only-gemm"
    candidate: ClassVar[str | None] = "cuda_llm_ops:weight_only_gemm"
    vetted: ClassVar[bool] = True
    phrases: ClassVar[tuple[str, ...]] = (r"int(?P<bits>\d+)(?: groups of (?P<group>\d+)(?P<zeros>, zero points)?)?",)
    hard_distributions: ClassVar[tuple[str, ...]] = ("dominant", "constant-rows", "cancellation")

    m: int
    n: int
    k: int
    _: KW_ONLY
    bits: int = 4
    group: int = 128
    zeros: bool = False
    dtype: str = "bfloat16"

    def __post_init__(self) -> None:
        put = object.__setattr__
        for what in ("m", "n", "k", "bits", "group"):
            put(self, what, positive(what, getattr(self, what)))
        put(self, "dtype", dtype_name("dtype", self.dtype, HALF_DTYPES))
        flag("zeros", self.zeros)
        if self.bits not in BITS:
            raise ValueError(f"bits is {self.bits}; it must be 4 or 8")
        if self.group not in WEIGHT_GROUPS:
            raise ValueError(f"group is {self.group}; it must be 64 or 128")
        if self.zeros and self.bits == 8:
            raise ValueError("zeros is True with bits 8; it must be False, as 8-bit weights are symmetric")
        if self.k % self.depth:
            raise ValueError(f"k is {self.k}; it must be a multiple of {self.depth}")

    @property
    def depth(self) -> int:
        """The number that k must be a multiple of."""
        return self.group if self.bits == 4 else TILE_DEPTH

    @property
    def name(self) -> str:
        of_four = f" groups of {self.group}{', zero points' if self.zeros else ''}"
        return f"{self.m}x{self.n}x{self.k} {self.dtype} int{self.bits}{of_four if self.bits == 4 else ''}"

    @property
    def result_dtype(self) -> str:
        return self.dtype

    @property
    def flops(self) -> float:
        return 2.0 * self.m * self.n * self.k

    @property
    def bytes(self) -> float:
        """Numbers, scales, zero points and rows read once, the result written once."""
        groups = self.k // self.group if self.bits == 4 else 1
        of_scales = groups * self.n * (ITEM_BYTES[self.dtype] + self.zeros)
        rows = self.m * (self.n + self.k) * ITEM_BYTES[self.dtype]
        return float(self.n * self.k * self.bits // 8 + of_scales + rows)

    @property
    def default_rival(self) -> str:
        return "dequantised"

    @property
    def row_count(self) -> int:
        return self.m

    @property
    def exchangeable(self) -> bool:
        return False  # numbers belong to their scales

    @property
    def innermost(self) -> str:
        return "k"

    def neighbour(self, near: Callable[[int], int]) -> Problem:
        k = max(1, round(near(self.k) / self.depth)) * self.depth
        return replace(self, m=near(self.m), n=near(self.n), k=k)

    def inputs(self, generator: torch.Generator, *, distribution: str = "normal") -> Inputs:
        """(x, packed, scales) and, if there are any, zero points, on the generator's device."""
        dtype = torch_dtype(self.dtype)
        x = draw(distribution, (self.m, self.k), dtype, generator, role="a")
        numbers, scales, zeros = self._weights(generator, distribution)
        if distribution not in ("normal", "cancellation"):
            numbers = saturated_weights(numbers, generator)
        packed = packed_tiles(numbers)
        return Inputs((x, packed, scales) if zeros is None else (x, packed, scales, zeros))

    def _weights(self, generator: torch.Generator, distribution: str) -> Any:
        values = weights_drawn(distribution, self.k, self.n, self.group, generator)
        return quantised_weights(values, self.bits, self.group, self.zeros, torch_dtype(self.dtype))

    def signal_to_noise(self, generator: torch.Generator) -> float:
        """Decibels by which ordinary weights exceed what quantisation changed in them; no part of a kernel's error."""
        import torch

        values = weights_drawn("normal", self.k, self.n, self.group, generator)
        made = quantised_weights(values, self.bits, self.group, self.zeros, torch_dtype(self.dtype))
        return signal_to_noise(values, weights_of(*made, torch.float64))

    def values(self, inputs: Inputs, dtype: torch.dtype, columns: slice = slice(None)) -> torch.Tensor:
        """The weights of some columns, which begin at a tile, computed in `dtype`."""
        packed, scales, *zeros = inputs.args[1:]
        first, last, _ = columns.indices(self.n)
        tiles = packed[first // 16 : -(-last // 16)]
        some = [one[..., first:last] for one in (scales, *zeros)]
        numbers = unpacked_tiles(tiles, last - first)
        return weights_of(numbers, some[0], some[1] if zeros else None, dtype)

    def own_rivals(self) -> Mapping[str, Callable[..., Any]]:
        return {"dequantised": self._dequantised}

    def _dequantised(self, *args: torch.Tensor) -> torch.Tensor:
        """torch's product of the weights in float32: what a plain kernel computes that sums in float32."""
        import torch

        x = args[0].float()
        return (x @ self.values(Inputs(args), torch.float32)).to(args[0].dtype)

    def reference(self, inputs: Inputs, *, rows: torch.Tensor | None = None) -> torch.Tensor:
        """In blocks of columns, whose weights are widened in turn."""
        import torch

        x = inputs.args[0]
        x = (x if rows is None else x.index_select(0, rows.to(x.device))).double()
        out = torch.empty((x.shape[0], self.n), dtype=torch.float64, device=x.device)
        for first in range(0, self.n, COLUMNS_AT_ONCE):
            some = slice(first, min(first + COLUMNS_AT_ONCE, self.n))
            out[:, some] = x @ self.values(inputs, torch.float64, some)
        return out

    def in_order(
        self, inputs: Inputs, right: torch.Tensor, rows: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        import torch

        x = inputs.args[0].float()
        x = x if rows is None else x.index_select(0, rows.to(x.device))
        some, columns = spread(x.shape[0], MOST_ROWS, x.device), spread(self.n, MOST_COLUMNS, x.device)
        weights = self.values(inputs, torch.float32)[:, columns]
        return running(x[some], weights), right[some][:, columns]
