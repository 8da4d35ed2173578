"""Products of groups of rows, each with a weight of its own, in 8 bits: the experts of a mixture."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from perfsuite.problems.base import Inputs, Problem
from perfsuite.problems.checks import ITEM_BYTES, flag, positive
from perfsuite.problems.families.fp8_gemm import FP8_PHRASES, SCALE_BYTES, call_options, check_fp8_words
from perfsuite.problems.fp8 import (
    BLOCK,
    blocks,
    in_bfloat16,
    promoted,
    quantised,
    saturated,
    values_drawn,
    values_of,
)

if TYPE_CHECKING:
    import torch

ROOM = 2
"""Capacity of a masked group over the mean of the rows that count."""


@dataclass(frozen=True)
class GroupedGemm(Problem):
    """groups x (rows, k) times the transpose of a weight (n, k) of each group, of 8-bit numbers with scales.

    rows: of a group on average; the sizes differ at random. On hard inputs one group has all rows that it may have,
    and the others have few or none.
    masked: a is (groups, 2 x rows, k), of which the first rows of each group count. Else the groups follow each other
    in a (groups x rows, k).
    scales, a_dtype, out_dtype, fast_sums: as of Fp8Gemm. With "tensor", each weight has a scale.
    Candidates are called `f(a, b, scale_a, scale_b, groups, out_dtype=...)`. groups (int32): where each group ends, or
    how many of its rows count. Rows that do not count are zeros in the result.
    """

    family: ClassVar[str] = "grouped-gemm"
    candidate: ClassVar[str | None] = "cuda_llm_ops:fp8_grouped_gemm"
    vetted: ClassVar[bool] = True
    phrases: ClassVar[tuple[str, ...]] = FP8_PHRASES
    hard_distributions: ClassVar[tuple[str, ...]] = ("dominant", "constant-rows", "cancellation")

    groups: int
    rows: int
    n: int
    k: int
    _: KW_ONLY
    masked: bool = False
    scales: str = "row"
    a_dtype: str = "float8_e4m3fn"
    out_dtype: str = "bfloat16"
    fast_sums: bool = False

    def __post_init__(self) -> None:
        for what in ("groups", "rows", "n", "k"):
            object.__setattr__(self, what, positive(what, getattr(self, what)))
        flag("masked", self.masked)
        check_fp8_words(self)

    @property
    def name(self) -> str:
        masked = " masked" if self.masked else ""
        fast = " fast sums" if self.fast_sums else ""
        size = f"{self.groups}x{self.rows}x{self.n}x{self.k}"
        return f"{size} {self.a_dtype}->{self.out_dtype} scale a {self.scales}{masked}{fast}"

    @property
    def result_dtype(self) -> str:
        return self.out_dtype

    @property
    def flops(self) -> float:
        return 2.0 * self.groups * self.rows * self.n * self.k

    @property
    def bytes(self) -> float:
        """The rows that count, all weights and their scales read once, all of the result written once."""
        rows = self.groups * self.rows
        result = rows * (ROOM if self.masked else 1) * self.n * ITEM_BYTES[self.out_dtype]
        scales = {
            "tensor": 1 + self.groups,
            "row": rows + self.groups * self.n,
            "block": (rows + self.groups * blocks(self.n)) * blocks(self.k),
        }[self.scales]
        return float((rows + self.groups * self.n) * self.k + result + (scales + self.groups) * SCALE_BYTES)

    @property
    def default_rival(self) -> str:
        return "scaled_mm"

    @property
    def yardstick(self) -> str:
        return "bfloat16" if self.fast_sums else "promoted"

    @property
    def exchangeable(self) -> bool:
        return False

    @property
    def innermost(self) -> str:
        return "k"

    def inputs(self, generator: torch.Generator, *, distribution: str = "normal") -> Inputs:
        """(a, b, scale_a, scale_b, groups) on the generator's device, and the options of a call."""
        import torch

        total, capacity = self.groups * self.rows, ROOM * self.rows
        sizes = self._sizes(generator, hard=distribution != "normal")
        lead = (self.groups, capacity) if self.masked else (total,)
        a = values_drawn(distribution, (*lead, self.k), "a", generator)
        b = values_drawn(distribution, (self.groups, self.n, self.k), "b", generator)
        numbers, scale_a = quantised(a, self.a_dtype, self.scales, 1)
        if distribution not in ("normal", "cancellation"):
            numbers = saturated(numbers, generator)
        weights, scale_b = quantised(b, "float8_e4m3fn", self.scales, BLOCK, grouped=True)
        if self.masked and scale_a.dim() == 3:  # stride 1 along the rows of all groups
            scale_a = scale_a.flatten(0, 1).mT.contiguous().mT.unflatten(0, (self.groups, capacity))
        groups = sizes if self.masked else sizes.cumsum(0)
        return Inputs((numbers, weights, scale_a, scale_b, groups.to(torch.int32)), call_options(self))

    def _sizes(self, generator: torch.Generator, *, hard: bool) -> torch.Tensor:
        """Rows of each group, which add up to groups x rows."""
        import torch

        total, device = self.groups * self.rows, generator.device
        if not hard:
            share = torch.rand(self.groups, generator=generator, device=device) * (self.rows // 2 + 1)
            moved = share.long().clamp(max=self.rows)  # from each group to the next but one: at most half as many again
            return self.rows - moved + moved.roll(1)
        most = min(total, ROOM * self.rows) if self.masked else total
        left = total - torch.arange(self.groups, device=device) * most
        sizes = left.clamp(0, most)
        return sizes[torch.randperm(self.groups, generator=generator, device=device)]

    def own_rivals(self) -> Mapping[str, Callable[..., Any]]:
        return {"promoted": self._one_by_one(promoted), "bfloat16": self._one_by_one(in_bfloat16)}

    def library(self) -> Callable[..., Any]:
        return self.own_rivals()[self.yardstick]

    def parts(self, groups: torch.Tensor) -> list[Any]:
        """The index of each group's rows in a, its scales and the result; the host waits for the sizes."""
        sizes = groups.tolist()
        if self.masked:
            return [(group, slice(0, size)) for group, size in enumerate(sizes)]
        return [slice(first, end) for first, end in zip([0, *sizes], sizes, strict=False)]

    def _one_by_one(self, product: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        def library_products(
            a: torch.Tensor,
            b: torch.Tensor,
            scale_a: torch.Tensor,
            scale_b: torch.Tensor,
            groups: torch.Tensor,
            *,
            out_dtype: torch.dtype,
            fast_sums: bool = False,
        ) -> torch.Tensor:
            out = a.new_zeros((*a.shape[:-1], b.shape[1]), dtype=out_dtype)
            for group, part in enumerate(self.parts(groups)):
                if a[part].shape[0]:
                    of_rows = scale_a[part] if scale_a.dim() else scale_a
                    out[part] = product(a[part], b[group], of_rows, scale_b[group], out_dtype)
            return out

        return library_products

    def reference(self, inputs: Inputs, *, rows: torch.Tensor | None = None) -> torch.Tensor:
        import torch

        a, b, scale_a, scale_b, groups = inputs.args
        out = torch.zeros((*a.shape[:-1], b.shape[1]), dtype=torch.float64, device=a.device)
        for group, part in enumerate(self.parts(groups)):
            left = values_of(a[part], scale_a[part] if scale_a.dim() else scale_a, 1, torch.float64)
            out[part] = left @ values_of(b[group], scale_b[group], BLOCK, torch.float64).T
        return out
