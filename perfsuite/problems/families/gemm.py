"""Matrix products."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

from perfsuite.problems.base import Inputs, Problem, Scalar
from perfsuite.problems.checks import DTYPE_WORDS, HALF_DTYPES, ITEM_BYTES, dtype_name, flag, positive, torch_dtype
from perfsuite.problems.distributions import draw
from perfsuite.problems.exact import BLOCK_BYTES, MOST_COLUMNS, MOST_ROWS, running, spread
from perfsuite.problems.exact_gradients import product_gradients
from perfsuite.problems.gradients import Differentiable

if TYPE_CHECKING:
    import argparse

    import torch


@dataclass(frozen=True)
class Gemm(Differentiable):
    """a (m, k) times b (k, n), or a batch of them: a (batch, m, k), b (batch, k, n).

    out_dtype: by default that of the operands; for 16-bit operands it may be "float32".
    trans_a, trans_b: the operand is stored transposed. Candidate and rival get a view of it in the shape above.
    backward: "only" for the gradients of a and b alone, True for the product and both.
    Candidates are called `f(a, b)`. Sums are float32 for every dtype.
    """

    family: ClassVar[str] = "gemm"
    candidate: ClassVar[str | None] = "cuda_llm_ops:gemm"
    vetted: ClassVar[bool] = True
    phrases: ClassVar[tuple[str, ...]] = (
        r"(?P<dtype>\w+)->(?P<out_dtype>\w+)",
        r"(?:(?P<trans_a>t)|n)(?:(?P<trans_b>t)|n)",
    )

    m: int
    n: int
    k: int
    dtype: str = "float16"
    out_dtype: str | None = None
    trans_a: bool = False
    trans_b: bool = False
    batch: int | None = None
    backward: bool | str = False

    def __post_init__(self) -> None:
        put = object.__setattr__
        for what in ("m", "n", "k"):
            put(self, what, positive(what, getattr(self, what)))
        put(self, "dtype", dtype_name("dtype", self.dtype))
        if self.out_dtype is not None:
            allowed = (self.dtype, "float32") if self.dtype in HALF_DTYPES else (self.dtype,)
            name = dtype_name("out_dtype", self.out_dtype, allowed)
            put(self, "out_dtype", None if name == self.dtype else name)
        flag("trans_a", self.trans_a)
        flag("trans_b", self.trans_b)
        self.check_backward()
        if self.batch is not None:
            put(self, "batch", positive("batch", self.batch))

    @property
    def name(self) -> str:
        size = f"{self.m}x{self.n}x{self.k}" if self.batch is None else f"{self.batch}x{self.m}x{self.n}x{self.k}"
        layout = " " + "".join("nt"[t] for t in (self.trans_a, self.trans_b)) if self.trans_a or self.trans_b else ""
        out = f"->{self.out_dtype}" if self.out_dtype else ""
        return f"{size} {self.dtype}{out}{layout}{self.backward_word}"

    @property
    def params(self) -> dict[str, Scalar]:
        # An unused option is left out: params stay equal to those of cases recorded before it existed.
        given = super().params | {"out_dtype": self.out_dtype or self.dtype}
        return {name: value for name, value in given.items() if name != "backward" or value is not False}

    @property
    def result_dtype(self) -> str | None:
        """None for a backward: gradients have the operands' dtype, the product may have another."""
        return (self.out_dtype or self.dtype) if self.backward is False else None

    @property
    def operands(self) -> int:
        return 2

    @property
    def flops(self) -> float:
        """Of a backward: two products, each as large as the forward's."""
        return {False: 1.0, True: 3.0, "only": 2.0}[self.backward] * 2.0 * (self.batch or 1) * self.m * self.n * self.k

    @property
    def bytes(self) -> float:
        """Of a backward: the operands and the result's gradient are read, and the operands' gradients are written."""
        operands = (self.m * self.k + self.k * self.n) * ITEM_BYTES[self.dtype]
        result = self.m * self.n * ITEM_BYTES[self.out_dtype or self.dtype]
        forward, both = operands + result, 2 * operands + result
        return float((self.batch or 1) * {False: forward, True: forward + both, "only": both}[self.backward])

    @property
    def default_rival(self) -> str:
        return "cublas"

    @property
    def row_count(self) -> int | None:
        return self.m if self.backward is False else None

    def neighbour(self, near: Callable[[int], int]) -> Problem:
        return replace(self, m=near(self.m), n=near(self.n), k=near(self.k))

    @property
    def innermost(self) -> str:
        return "k"

    def variations(self) -> tuple[Problem, ...]:
        """Half the sizes: at four times the batch the same bytes for half the FLOPs, at eight times the reverse."""
        sizes = {name: max(1, getattr(self, name) // 2) for name in ("m", "n", "k")}
        return tuple(replace(self, **sizes, batch=factor * (self.batch or 1)) for factor in (4, 8))

    @classmethod
    def parse(cls, shape: str, words: Sequence[str]) -> Self:
        """The shape is m x n x k, or batch x m x n x k."""
        first, _, rest = shape.partition("x")
        if rest.count("x") != 2 or not first.isdecimal():
            return super().parse(shape, words)
        return replace(super().parse(rest, words), batch=int(first))

    @classmethod
    def add_options(cls, parser: argparse.ArgumentParser) -> None:
        sizes = ["512x512x512", "1024x1024x1024", "2048x2048x2048"]
        parser.add_argument("--sizes", nargs="+", default=sizes, metavar="MxNxK")
        parser.add_argument("--out-dtype", choices=sorted(DTYPE_WORDS), help="of the result (default: the operands')")

    @classmethod
    def from_options(cls, options: argparse.Namespace) -> list[Self]:
        words = [options.dtype] if options.dtype else []
        out = DTYPE_WORDS[options.out_dtype] if options.out_dtype else None
        return [replace(cls.parse(size.lower(), words), out_dtype=out) for size in options.sizes]

    def inputs(self, generator: torch.Generator, *, distribution: str = "normal") -> Inputs:
        """(a, b) on the generator's device."""
        dtype = torch_dtype(self.dtype)
        lead = () if self.batch is None else (self.batch,)

        def operand(role: str, rows: int, columns: int, axis: int, transposed: bool) -> torch.Tensor:
            values = draw(distribution, (*lead, rows, columns), dtype, generator, role=role, axis=axis)
            # The values are the same either way; only the layout differs.
            return values.mT.contiguous().mT if transposed else values

        a = operand("a", self.m, self.k, -1, self.trans_a)
        b = operand("b", self.k, self.n, -2, self.trans_b)
        if self.backward is False:
            return Inputs((a, b))
        out_dtype = torch_dtype(self.out_dtype or self.dtype)
        return self.with_gradient(Inputs((a, b)), draw("normal", (*lead, self.m, self.n), out_dtype, generator))

    def reference(self, inputs: Inputs, *, rows: torch.Tensor | None = None) -> Any:
        import torch

        if self.backward is not False:
            a, b, _, (gradient,) = inputs.args
            return self.answers(*product_gradients(a, b, gradient))
        a, b = inputs.args
        if rows is not None:
            a = a.index_select(-2, rows.to(a.device))
        out = torch.empty((*a.shape[:-1], b.shape[-1]), dtype=torch.float64, device=a.device)
        left, right, result = (t if t.dim() == 3 else t.unsqueeze(0) for t in (a, b, out))
        step = max(1, BLOCK_BYTES[a.device.type] // (8 * max(a.shape[-1], b.shape[-1])))
        for one in range(left.shape[0]):
            wide = right[one].double()
            for start in range(0, left.shape[1], step):
                block = slice(start, start + step)
                torch.mm(left[one, block].double(), wide, out=result[one, block])
        return out

    def in_order(
        self, inputs: Inputs, right: torch.Tensor, rows: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor] | None:
        if self.backward is not False:
            return None
        a, b = inputs.args
        a = a if rows is None else a.index_select(-2, rows)
        if a.dim() == 3:
            a, b, right = a[-1], b[-1], right[-1]
        some, columns = spread(a.shape[0], MOST_ROWS, a.device), spread(b.shape[1], MOST_COLUMNS, a.device)
        sums = running(a[some].float(), b[:, columns].float())
        return sums, right[some][:, columns]
