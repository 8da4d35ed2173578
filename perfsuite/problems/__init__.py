"""The computations that kernels are judged on: shapes, costs, inputs, right answers and rivals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .base import Inputs, Problem, ReferenceUnavailableError, RivalUnavailableError
from .distributions import DISTRIBUTIONS

if TYPE_CHECKING:
    from .families.attention import Attention as Attention
    from .families.custom import Custom as Custom
    from .families.decode import Decode as Decode
    from .families.fp8_gemm import Fp8Gemm as Fp8Gemm
    from .families.gemm import Gemm as Gemm
    from .families.grouped_gemm import GroupedGemm as GroupedGemm
    from .families.weight_only_gemm import WeightOnlyGemm as WeightOnlyGemm

__all__ = ["DISTRIBUTIONS", "Inputs", "Problem", "ReferenceUnavailableError", "RivalUnavailableError"]


def __getattr__(name: str) -> Any:
    """The class of a family, imported when it is first used."""
    from .listing import families, family_class

    if name[:1].isupper() and (found := family_class(name)) is not None:
        return found
    known = ", ".join(sorted(cls.__name__ for cls in families().values()))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}; its families are {known}")
