"""Matrix products."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from .base import Inputs, Problem, Scalar
from .checks import HALF_DTYPES, ITEM_BYTES, dtype_name, flag, positive, torch_dtype
from .cublas_tuned import cublas_tuned
from .distributions import draw
from .rivals import GEMM_NAMES, cublas

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Gemm(Problem):
    """a (m, k) times b (k, n), or a batch of them: a (batch, m, k), b (batch, k, n).

    out_dtype: that of the operands unless given; "float32" is the one other choice for 16-bit operands.
    trans_a, trans_b: the operand is stored transposed, and candidate and rival both get the transposed view of the
    shape above. Candidates are called `f(a, b)`. Sums are float32 for every dtype.
    """

    family: ClassVar[str] = "gemm"

    m: int
    n: int
    k: int
    dtype: str = "float16"
    out_dtype: str | None = None
    trans_a: bool = False
    trans_b: bool = False
    batch: int | None = None

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
        if self.batch is not None:
            put(self, "batch", positive("batch", self.batch))

    @property
    def name(self) -> str:
        size = f"{self.m}x{self.n}x{self.k}" if self.batch is None else f"{self.batch}x{self.m}x{self.n}x{self.k}"
        layout = " " + "".join("nt"[t] for t in (self.trans_a, self.trans_b)) if self.trans_a or self.trans_b else ""
        out = f"->{self.out_dtype}" if self.out_dtype else ""
        return f"{size} {self.dtype}{out}{layout}"

    @property
    def params(self) -> dict[str, Scalar]:
        return {
            "m": self.m,
            "n": self.n,
            "k": self.k,
            "dtype": self.dtype,
            "out_dtype": self.out_dtype or self.dtype,
            "trans_a": self.trans_a,
            "trans_b": self.trans_b,
            "batch": self.batch,
        }

    @property
    def flops(self) -> float:
        return 2.0 * (self.batch or 1) * self.m * self.n * self.k

    @property
    def bytes(self) -> float:
        read = (self.m * self.k + self.k * self.n) * ITEM_BYTES[self.dtype]
        return float((self.batch or 1) * (read + self.m * self.n * ITEM_BYTES[self.out_dtype or self.dtype]))

    @property
    def default_rival(self) -> str:
        return "cublas"

    def inputs(self, generator: torch.Generator, *, distribution: str = "normal") -> Inputs:
        """(a, b) on the generator's device."""
        dtype = torch_dtype(self.dtype)
        lead = () if self.batch is None else (self.batch,)

        def operand(role: str, rows: int, columns: int, axis: int, transposed: bool) -> torch.Tensor:
            values = draw(distribution, (*lead, rows, columns), dtype, generator, role=role, axis=axis)
            # The same values either way; only where they lie differs.
            return values.mT.contiguous().mT if transposed else values

        a = operand("a", self.m, self.k, -1, self.trans_a)
        b = operand("b", self.k, self.n, -2, self.trans_b)
        return Inputs((a, b))

    def rival(self, name: str) -> Callable[..., Any]:
        """cuBLAS through torch.mm or torch.bmm (torch's CPU library for operands on a CPU), or its fastest algorithm.

        The latter, "cublas:tuned", is on a GPU only (RivalUnavailableError at the call elsewhere).
        """
        if name not in GEMM_NAMES:
            raise ValueError(f"rival is {name!r}; a GEMM's rival must be one of {', '.join(GEMM_NAMES)}")
        library = cublas if name == "cublas" else cublas_tuned
        out_dtype = torch_dtype(self.out_dtype) if self.out_dtype else None
        return library(batched=self.batch is not None, out_dtype=out_dtype)
