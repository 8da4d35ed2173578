"""What every problem offers to the rooms after it: shapes, costs, inputs and the library that rivals it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    import torch

Scalar = int | float | str | bool | None


@dataclass(frozen=True)
class Inputs:
    """The arguments of one call: `function(*args, **kwargs)`. Tensors lie in `args`; `kwargs` holds plain options."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    def call(self, function: Callable[..., Any]) -> Any:
        """Call `function` with these arguments and return what it returns."""
        return function(*self.args, **self.kwargs)


@runtime_checkable
class Problem(Protocol):
    """One computation at one size. Implementations are frozen dataclasses and import torch only inside methods."""

    @property
    def family(self) -> str:
        """The kind of computation: "gemm", "attention", "custom"."""
        ...

    @property
    def name(self) -> str:
        """Short and unique within the family, for tables: "512x512x512 float16"."""
        ...

    @property
    def params(self) -> dict[str, Scalar]:
        """Every parameter that defines the computation, as plain values, for the record."""
        ...

    @property
    def flops(self) -> float | None:
        """Floating-point operations of one call (a multiply-add is two), or None where unknown."""
        ...

    @property
    def bytes(self) -> float | None:
        """Bytes that must cross device memory: each input read once, each output written once; None where unknown."""
        ...

    @property
    def default_rival(self) -> str | None:
        """The rival's name where none is given: "cublas", "sdpa"; None where the user must say."""
        ...

    def inputs(self, generator: torch.Generator, *, distribution: str = "normal") -> Inputs:
        """Fresh inputs on the generator's device, drawn from `distribution` (see perfsuite.problems.distributions)."""
        ...

    def rival(self, name: str) -> Callable[..., Any]:
        """The library function of that name, callable with `inputs`; ValueError lists the known names."""
        ...
