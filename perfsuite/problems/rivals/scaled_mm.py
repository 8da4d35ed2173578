"""torch's own FP8 products, with fast sums exactly if the problem allows them; of groups, scaled_grouped_mm."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from perfsuite.problems.base import RivalUnavailableError

if TYPE_CHECKING:
    import torch

    from perfsuite.problems.families.fp8_gemm import Fp8Gemm
    from perfsuite.problems.families.grouped_gemm import GroupedGemm

SERVES = ("fp8-gemm", "grouped-gemm")
NAMES = ("scaled_mm",)
_ALIGNED = 16


def rival(problem: Fp8Gemm | GroupedGemm, name: str) -> Callable[..., Any]:
    """The product of `problem`, called as candidates are; at the call, RivalUnavailableError where torch has none."""
    if problem.n % _ALIGNED or problem.k % _ALIGNED:
        return refusing(f"n is {problem.n} and k is {problem.k}; torch takes multiples of {_ALIGNED}", name)
    if problem.family == "grouped-gemm":
        return _grouped(problem)
    return _blocks(problem) if problem.scales == "block" else _plain(problem)


def refusing(why: str, name: str = NAMES[0]) -> Callable[..., Any]:
    """A rival that cannot run the problem, and says why."""

    def library_product(*_: Any, **__: Any) -> Any:
        raise RivalUnavailableError(f"{name} cannot run this problem: {why}")

    return library_product


def _plain(problem: Any) -> Callable[..., Any]:
    import torch

    by_row = problem.scales == "row"
    fast = problem.fast_sums

    def library_product(
        a: torch.Tensor,
        b: torch.Tensor,
        scale_a: torch.Tensor,
        scale_b: torch.Tensor,
        *,
        out_dtype: torch.dtype,
        fast_sums: bool = False,
    ) -> torch.Tensor:
        if by_row and a.device.type == "cuda" and out_dtype != torch.bfloat16:
            raise RivalUnavailableError(
                f"scaled_mm cannot run this problem: with scales of rows its result is bfloat16, not {out_dtype}"
            )
        if by_row:
            scale_a, scale_b = scale_a[:, None], scale_b[None]
        return torch._scaled_mm(a, b.T, scale_a, scale_b, out_dtype=out_dtype, use_fast_accum=fast)

    return library_product


def _blocks(problem: Any) -> Callable[..., Any]:
    import torch

    functional: Any = torch.nn.functional
    if not hasattr(functional, "scaled_mm"):
        return refusing(f"torch {torch.__version__} has no torch.nn.functional.scaled_mm")
    kinds = functional.ScalingType

    def library_product(
        a: torch.Tensor,
        b: torch.Tensor,
        scale_a: torch.Tensor,
        scale_b: torch.Tensor,
        *,
        out_dtype: torch.dtype,
        fast_sums: bool = False,
    ) -> Any:
        # cuBLASLt wants the scales of b in rows of a multiple of four.
        if blocks_missing := -scale_b.shape[1] % 4:
            scale_b = functional.pad(scale_b, (0, blocks_missing))
        try:
            return functional.scaled_mm(
                a,
                b.T,
                scale_a,
                kinds.BlockWise1x128,
                scale_b.T,
                kinds.BlockWise128x128,
                output_dtype=out_dtype,
                use_fast_accum=False,
            )
        except (RuntimeError, ValueError) as error:
            said = str(error).splitlines()[0]
            raise RivalUnavailableError(f"scaled_mm cannot run this problem: {said}") from error

    return library_product


def _grouped(problem: Any) -> Callable[..., Any]:
    import torch

    if problem.masked or problem.scales != "row":
        return refusing("torch's grouped product takes groups that follow each other, with scales of rows")
    if not hasattr(torch, "_scaled_grouped_mm"):
        return refusing(f"torch {torch.__version__} has no grouped product of 8-bit operands")
    fast = problem.fast_sums

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
        try:
            return torch._scaled_grouped_mm(
                a, b.mT, scale_a, scale_b, offs=groups, out_dtype=out_dtype, use_fast_accum=fast
            )
        except (RuntimeError, ValueError) as error:
            said = str(error).splitlines()[0]
            raise RivalUnavailableError(f"scaled_mm cannot run this problem: {said}") from error

    return library_products
