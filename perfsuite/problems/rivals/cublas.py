"""cuBLAS through torch.mm or torch.bmm; on a CPU, torch's own library."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from perfsuite.problems.checks import torch_dtype

if TYPE_CHECKING:
    import torch

    from perfsuite.problems.families.gemm import Gemm

SERVES = ("gemm",)
NAMES = ("cublas",)


def rival(problem: Gemm, name: str) -> Callable[..., Any]:
    """The product of `problem`, called as f(a, b)."""
    out_dtype = torch_dtype(problem.out_dtype) if problem.out_dtype else None
    return cublas(batched=problem.batch is not None, out_dtype=out_dtype)


@contextmanager
def equal_precision(dtype: torch.dtype) -> Iterator[None]:
    """Make cuBLAS add in full float32, as candidates do: no TF32, no reduced-precision reduction of split-K.

    By default torch allows the latter for 16-bit types. A comparison at unequal precision would not be fair.
    """
    import torch

    matmul = torch.backends.cuda.matmul
    names = {
        torch.float16: ("allow_fp16_reduced_precision_reduction", "allow_fp16_accumulation"),
        torch.bfloat16: ("allow_bf16_reduced_precision_reduction",),
        torch.float32: ("allow_tf32",),
    }.get(dtype, ())
    before = {name: value for name in names if (value := getattr(matmul, name))}
    for name in before:
        setattr(matmul, name, False)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(matmul, name, value)


def cublas(*, batched: bool, out_dtype: torch.dtype | None) -> Callable[..., Any]:
    """`torch.mm` or `torch.bmm` at equal precision.

    out_dtype: None for that of the operands. On a GPU, cuBLAS gives a float32 result of 16-bit operands. torch has no
    such product on a CPU, so there the operands are widened first.
    """
    import torch

    product = torch.bmm if batched else torch.mm

    def library_gemm(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        if a.device.type == "cpu":
            return product(a, b) if out_dtype is None else product(a.to(out_dtype), b.to(out_dtype))
        with equal_precision(a.dtype):
            return product(a, b) if out_dtype is None else product(a, b, out_dtype=out_dtype)

    return library_gemm
