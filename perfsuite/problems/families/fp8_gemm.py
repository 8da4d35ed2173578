"""Products of 8-bit floating-point operands with scales."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from perfsuite.problems.base import Inputs, Problem
from perfsuite.problems.checks import ITEM_BYTES, dtype_name, flag, positive, torch_dtype
from perfsuite.problems.exact import BLOCK_BYTES, MOST_COLUMNS, MOST_ROWS, running, spread
from perfsuite.problems.fp8 import (
    BLOCK,
    FP8_DTYPES,
    FP8_OUT_DTYPES,
    FP8_SCALES,
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

SCALE_BYTES = 4
FP8_PHRASES = (r"(?P<a_dtype>\w+)->(?P<out_dtype>\w+)", r"scale a (?P<scales>\w+)", r"(?P<fast_sums>fast sums)")
"""Of the names of both families: `Problem.phrases`."""


@dataclass(frozen=True)
class Fp8Gemm(Problem):
    """(scale_a a) (m, k) times (scale_b b) (n, k) transposed, of 8-bit numbers; sums are float32.

    a_dtype: "float8_e4m3fn" or "float8_e5m2"; b is always e4m3.
    scales: "tensor", "row" (of a row of each operand), or "block" (1 x 128 of a, 128 x 128 of b).
    out_dtype: "bfloat16", "float16" or "float32".
    fast_sums: the rival's sums stay in the tensor core, which adds in fewer bits, over all of k, and errors are held
    against those of a product in bfloat16. Else errors are held against sums promoted to float32 every 128 of k.
    Candidates are called `f(a, b, scale_a, scale_b, out_dtype=...)`, with `fast_sums=True` where it is allowed. Scales
    are float32: () and (), (m,) and (n,), or (m, k / 128) and (n / 128, k / 128), rounded up. The right answer is that
    on the values which numbers and scales give.
    """

    family: ClassVar[str] = "fp8-gemm"
    candidate: ClassVar[str | None] = "cuda_llm_ops:fp8_gemm"
    vetted: ClassVar[bool] = True
    phrases: ClassVar[tuple[str, ...]] = FP8_PHRASES
    hard_distributions: ClassVar[tuple[str, ...]] = ("dominant", "constant-rows", "cancellation")

    m: int
    n: int
    k: int
    _: KW_ONLY
    scales: str = "tensor"
    a_dtype: str = "float8_e4m3fn"
    out_dtype: str = "bfloat16"
    fast_sums: bool = False

    def __post_init__(self) -> None:
        put = object.__setattr__
        for what in ("m", "n", "k"):
            put(self, what, positive(what, getattr(self, what)))
        check_fp8_words(self)

    @property
    def name(self) -> str:
        fast = " fast sums" if self.fast_sums else ""
        return f"{self.m}x{self.n}x{self.k} {self.a_dtype}->{self.out_dtype} scale a {self.scales}{fast}"

    @property
    def result_dtype(self) -> str:
        return self.out_dtype

    @property
    def flops(self) -> float:
        return 2.0 * self.m * self.n * self.k

    @property
    def bytes(self) -> float:
        """Both operands and their scales read once, the result written once."""
        scales = {
            "tensor": 2,
            "row": self.m + self.n,
            "block": (self.m + blocks(self.n)) * blocks(self.k),
        }[self.scales]
        result = self.m * self.n * ITEM_BYTES[self.out_dtype]
        return float((self.m + self.n) * self.k + result + scales * SCALE_BYTES)

    @property
    def default_rival(self) -> str:
        return "scaled_mm"

    @property
    def yardstick(self) -> str:
        return "bfloat16" if self.fast_sums else "promoted"

    @property
    def row_count(self) -> int:
        return self.m

    @property
    def exchangeable(self) -> bool:
        return False  # numbers belong to their scales, and the two halves of a cancelling sum to each other

    @property
    def innermost(self) -> str:
        return "k"

    def neighbour(self, near: Callable[[int], int]) -> Problem:
        return replace(self, m=near(self.m), n=near(self.n), k=near(self.k))

    def inputs(self, generator: torch.Generator, *, distribution: str = "normal") -> Inputs:
        """(a, b, scale_a, scale_b) on the generator's device, and the options of a call."""
        a, scale_a = self._operand("a", (self.m, self.k), self.a_dtype, 1, distribution, generator)
        b, scale_b = self._operand("b", (self.n, self.k), "float8_e4m3fn", BLOCK, distribution, generator)
        return Inputs((a, b, scale_a, scale_b), call_options(self))

    def _operand(
        self,
        role: str,
        shape: tuple[int, int],
        dtype: str,
        height: int,
        distribution: str,
        generator: torch.Generator,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        values = values_drawn(distribution, shape, role, generator)
        numbers, scale = quantised(values, dtype, self.scales, height)
        ordinary = distribution in ("normal", "cancellation")
        return (numbers if ordinary else saturated(numbers, generator)), scale

    def own_rivals(self) -> Mapping[str, Callable[..., Any]]:
        return {"promoted": _without_options(promoted), "bfloat16": _without_options(in_bfloat16)}

    def library(self) -> Callable[..., Any]:
        return self.own_rivals()[self.yardstick]

    def reference(self, inputs: Inputs, *, rows: torch.Tensor | None = None) -> torch.Tensor:
        """In blocks of rows and of columns, whose values are widened in turn."""
        import torch

        a, b, scale_a, scale_b = inputs.args
        if rows is not None:
            chosen = rows.to(a.device)
            a = a.view(torch.uint8).index_select(0, chosen).view(a.dtype)
            scale_a = scale_a.index_select(0, chosen) if scale_a.dim() else scale_a
        out = torch.empty((a.shape[0], b.shape[0]), dtype=torch.float64, device=a.device)
        step = max(BLOCK, BLOCK_BYTES[a.device.type] // (8 * a.shape[1]) // BLOCK * BLOCK)
        for column in range(0, b.shape[0], step):
            of_b = slice(column, column + step)
            right = values_of(b[of_b], _part(scale_b, of_b, BLOCK), BLOCK, torch.float64)
            for row in range(0, a.shape[0], step):
                of_a = slice(row, row + step)
                left = values_of(a[of_a], _part(scale_a, of_a, 1), 1, torch.float64)
                out[of_a, of_b] = left @ right.T
        return out

    def in_order(
        self, inputs: Inputs, right: torch.Tensor, rows: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        import torch

        a, b, scale_a, scale_b = inputs.args
        left = values_of(a, scale_a, 1, torch.float32)
        left = left if rows is None else left.index_select(0, rows.to(a.device))
        some, columns = spread(left.shape[0], MOST_ROWS, a.device), spread(b.shape[0], MOST_COLUMNS, a.device)
        weights = values_of(b, scale_b, BLOCK, torch.float32)[columns]
        return running(left[some], weights.T), right[some][:, columns]


def check_fp8_words(problem: Any) -> None:
    """Check and convert the parameters that every FP8 family has, for `__post_init__`."""
    put = object.__setattr__
    put(problem, "a_dtype", dtype_name("a_dtype", problem.a_dtype, tuple(FP8_DTYPES)))
    put(problem, "out_dtype", dtype_name("out_dtype", problem.out_dtype, FP8_OUT_DTYPES))
    if problem.scales not in FP8_SCALES:
        raise ValueError(f"scales is {problem.scales!r}; it must be one of {', '.join(FP8_SCALES)}")
    flag("fast_sums", problem.fast_sums)


def call_options(problem: Any) -> dict[str, Any]:
    """The keywords of a call."""
    options: dict[str, Any] = {"out_dtype": torch_dtype(problem.out_dtype)}
    return options | ({"fast_sums": True} if problem.fast_sums else {})


def _part(scale: torch.Tensor, rows: slice, height: int) -> torch.Tensor:
    """The scales of some rows, which begin at a block."""
    if not scale.dim():
        return scale
    if scale.dim() == 1 or height == 1:
        return scale[rows]
    return scale[rows.start // height : blocks(rows.stop)]


def _without_options(product: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def library_product(*operands: torch.Tensor, out_dtype: torch.dtype, fast_sums: bool = False) -> torch.Tensor:
        return product(*operands, out_dtype)

    return library_product
