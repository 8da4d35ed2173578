"""Any callable against any callable, on arguments that the user gives."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from perfsuite.problems.base import Inputs, Problem, ReferenceUnavailableError, Scalar
from perfsuite.problems.distributions import draw
from perfsuite.problems.tensors import map_tensors, tensors_in

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, eq=False)
class Custom(Problem):
    """`f(*args, **kwargs)` for the user's arguments.

    args: a tuple of arguments, or a callable that takes a torch.Generator and returns a new tuple on its device. From a
    tuple, fresh tensors of the same shapes, strides and dtypes are made for each set of inputs. Floating-point and
    complex ones are redrawn from the distribution, with the mean and standard deviation of the given ones. 8-bit
    integers (values, as a rule) are put in random order. Wider integers and booleans (indices, lengths, masks) and
    constant tensors are copied. If that does not suit, give a callable. CPU scalars stay on the CPU.
    flops, bytes: of one call, for the record and the roofline.
    label: the name in tables.
    against: the rival.
    reference: computes the right answer from the same arguments in float64; by default the rival does.
    """

    family: ClassVar[str] = "custom"
    hard_distributions: ClassVar[tuple[str, ...]] = ()

    args: tuple[Any, ...] | Callable[[torch.Generator], Any]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    flops: float | None = None
    bytes: float | None = None
    label: str = "custom"
    against: Callable[..., Any] | None = None
    reference: Callable[..., Any] | None = None  # type: ignore[assignment]  # the oracle widens inputs for it

    def __post_init__(self) -> None:
        put = object.__setattr__
        if isinstance(self.args, list):
            put(self, "args", tuple(self.args))
        elif not isinstance(self.args, tuple) and not callable(self.args):
            raise TypeError(
                f"args is {type(self.args).__name__}; it must be a tuple of arguments, or a callable that takes a "
                "torch.Generator and returns one (for a single tensor write args=(tensor,))"
            )
        elif not isinstance(self.args, tuple) and not _takes_one(self.args):
            raise TypeError(f"args is {self.args!r}; a callable must take one argument, a torch.Generator")
        if not isinstance(self.kwargs, Mapping):
            raise TypeError(f"kwargs is {type(self.kwargs).__name__}; it must map names to arguments")
        put(self, "kwargs", dict(self.kwargs))
        for what in ("flops", "bytes"):
            value = getattr(self, what)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise TypeError(f"{what} is {value!r}; it must be a number, or None where unknown")
            if not math.isfinite(value) or value <= 0:
                raise ValueError(f"{what} is {value!r}; it must be positive and finite, or None where unknown")
            put(self, what, float(value))
        if not isinstance(self.label, str) or not self.label:
            raise TypeError(f"label is {self.label!r}; it must be a text of at least one character")
        if not self.label.isprintable():
            raise ValueError(f"label is {self.label!r}; it stands in tables, so it must be one printable line")
        for what in ("against", "reference"):
            value = getattr(self, what)
            if value is not None and not callable(value):
                raise TypeError(f"{what} is {value!r}; it must be a callable")

    @property
    def name(self) -> str:
        shapes = "" if callable(self.args) else " ".join(str(_describe(arg)) for arg in self.args if _is_tensor(arg))
        return f"{self.label} {shapes}".strip()

    @property
    def params(self) -> dict[str, Scalar]:
        given: dict[str, Scalar] = {"label": self.label}
        if not callable(self.args):
            given |= {f"arg{place}": _describe(arg) for place, arg in enumerate(self.args)}
        return given | {name: _describe(arg) for name, arg in self.kwargs.items()}

    @property
    def default_rival(self) -> str | None:
        """The name of the callable given as `against`."""
        if self.against is None:
            return None
        return str(getattr(self.against, "__name__", type(self.against).__name__))

    def inputs(self, generator: torch.Generator, *, distribution: str = "normal") -> Inputs:
        """Fresh arguments. The distribution applies to redrawn tensors only, not to those that a callable makes."""

        def fresh(nest: Any) -> Any:
            return map_tensors(nest, lambda tensor: _redraw(tensor, generator, distribution))

        if callable(self.args):
            made = self.args(generator)
            args = tuple(made) if isinstance(made, tuple | list) else (made,)
        else:
            args = fresh(tuple(self.args))
        return Inputs(args, fresh(self.kwargs))

    def rival(self, name: str) -> Callable[..., Any]:
        if self.against is None:
            raise ValueError(f"rival is {name!r}, but {self.label} has none: give a callable as against=")
        if name != self.default_rival:
            raise ValueError(f"rival is {name!r}; the rival of {self.label} is {self.default_rival!r}")
        return self.against

    def library(self) -> Callable[..., Any]:
        if found := self.against or self.reference:
            return found
        raise ReferenceUnavailableError(f"{self.label} has nothing to be compared with: pass reference= or against=")

    def answer(self, inputs: Inputs, *, rows: torch.Tensor | None = None) -> Any:
        """The reference, or the rival, on arguments widened to float64; ReferenceUnavailableError if that fails."""
        import torch

        function, what = (self.reference, "reference") if self.reference else (self.against, "rival")
        if function is None:
            raise ReferenceUnavailableError(
                f"{self.label} has no right answer to compare with: pass reference=, a callable that takes the same "
                "arguments in float64, or against="
            )
        wide = map_tensors(inputs, _widen)
        try:
            result = wide.call(function)
        except Exception as error:  # the message passes on whatever the user's function raises
            raise ReferenceUnavailableError(
                f"the {what} of {self.label} fails on arguments widened to float64 ({type(error).__name__}: {error}); "
                "pass reference=, a callable that takes the same arguments in float64"
            ) from error
        for tensor in tensors_in(result):
            exact = tensor.dtype in (torch.float64, torch.complex128)
            if (tensor.is_floating_point() or tensor.is_complex()) and not exact:
                raise ReferenceUnavailableError(
                    f"the {what} of {self.label} returns {tensor.dtype} for float64 arguments; pass reference=, a "
                    "callable that computes in float64"
                )
        return result


def _takes_one(function: Callable[..., Any]) -> bool:
    try:
        with suppress(ValueError):  # a built-in without a signature
            inspect.signature(function).bind(None)
    except TypeError:
        return False
    return True


def _is_tensor(value: Any) -> bool:
    # Without importing torch: a tensor can only be here if torch is loaded.
    return hasattr(value, "data_ptr") and hasattr(value, "dtype")


def _describe(value: Any) -> Scalar:
    if _is_tensor(value):
        return f"{str(value.dtype).removeprefix('torch.')}[{'x'.join(map(str, value.shape))}]"
    return value if value is None or isinstance(value, int | float | str | bool) else type(value).__name__


def _redraw(given: torch.Tensor, generator: torch.Generator, distribution: str) -> torch.Tensor:
    import torch

    if given.dim() == 0 and given.device.type == "cpu":
        return given.clone()
    if 0 in given.stride() and given.numel() > 1:  # an expanded tensor: its memory holds fewer values than its shape
        return given.detach().to(generator.device, memory_format=torch.contiguous_format, copy=True)
    values = given.detach().to(generator.device)
    if given.is_floating_point() or given.is_complex():
        wide = values.to(torch.complex128 if given.is_complex() else torch.float64)
        deviation, mean = (wide.std(), wide.mean()) if wide.numel() > 1 else (wide.new_zeros(()), wide.new_zeros(()))
        if float(deviation.abs()) > 0 and math.isfinite(float(deviation.abs())):
            fresh = draw(distribution, tuple(given.shape), given.dtype, generator).to(wide.dtype)
            # Stretching would undo the values of "tiny" and spread those of "non-finite".
            stretch = distribution not in ("tiny", "non-finite")
            values = (fresh * deviation + mean if stretch else fresh).to(given.dtype)
    elif given.dtype in (torch.int8, torch.uint8) and given.numel() > 1:
        order = torch.randperm(given.numel(), generator=generator, device=generator.device)
        values = values.flatten()[order].view(given.shape)
    laid = torch.empty_strided(given.shape, given.stride(), dtype=given.dtype, device=generator.device)
    return laid.copy_(values)


def _widen(tensor: torch.Tensor) -> torch.Tensor:
    import torch

    if tensor.is_complex():
        return tensor.to(torch.complex128)
    return tensor.double() if tensor.is_floating_point() else tensor
