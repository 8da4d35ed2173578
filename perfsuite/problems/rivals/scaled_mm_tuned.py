"""torch's FP8 product with one scale an operand, or the fastest of cuBLASLt's algorithms for it: see `cublas_tuned`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from perfsuite.problems.cublas_lt import ScaledProduct
from perfsuite.problems.rivals import scaled_mm
from perfsuite.problems.rivals.cublas_tuned import chosen

if TYPE_CHECKING:
    import torch

    from perfsuite.problems.families.fp8_gemm import Fp8Gemm

SERVES = ("fp8-gemm",)
NAMES = ("scaled_mm:tuned",)


def rival(problem: Fp8Gemm, name: str) -> Callable[..., Any]:
    """A product that chooses its algorithm at the first call with operands of a kind; fast sums only if allowed.

    The call raises RivalUnavailableError for operands on a CPU, for other scales, and where torch has no product.
    """
    if problem.scales != "tensor":
        return scaled_mm.refusing(f"scales is {problem.scales!r}; its products have one scale an operand", name)
    own, fast = scaled_mm.rival(problem, name), problem.fast_sums
    make = partial(ScaledProduct, fast=fast)

    def library_product_tuned(
        a: torch.Tensor,
        b: torch.Tensor,
        scale_a: torch.Tensor,
        scale_b: torch.Tensor,
        *,
        out_dtype: torch.dtype,
        fast_sums: bool = False,
    ) -> Any:
        import torch

        one = torch.ones((), device=a.device)

        def unscaled(left: torch.Tensor, right: torch.Tensor) -> Any:
            return own(left, right.T, one, one, out_dtype=out_dtype)

        kind = "fast" if fast else "promoted"
        choice = chosen(unscaled, a, b.T, out_dtype, make=make, name=name, kind=kind)
        if choice.name == "torch":
            return own(a, b, scale_a, scale_b, out_dtype=out_dtype)
        assert isinstance(choice.product, ScaledProduct)
        choice.product.scale_by(scale_a, scale_b)
        return choice.call(a, b.T)

    return library_product_tuned
