"""Any callable against any callable, on arguments that the user gives."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

from perfsuite.outcome import UnjudgeableError
from perfsuite.problems.answers import Answer
from perfsuite.problems.base import Inputs, Problem, ReferenceUnavailableError, Scalar
from perfsuite.problems.checks import label_of, positive
from perfsuite.problems.float64 import in_float64, in_little_memory, is_float64
from perfsuite.problems.naming import NAMELESS_RIVAL, short_name
from perfsuite.problems.nests import has_layouts
from perfsuite.problems.redraw import hard_for, redrawn
from perfsuite.problems.tensors import map_tensors

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, eq=False)
class Custom(Problem):
    """`f(*args, **kwargs)` for the user's arguments.

    args: a tuple of arguments, or a callable that takes a torch.Generator and returns a new tuple on its device.
    Arguments may be any nest of tensors, numbers and None that torch's pytree knows, dataclasses, and sparse or nested
    tensors. From a tuple, fresh tensors of the same shapes, strides and dtypes are made for each set of inputs.
    Floating-point and complex ones are redrawn from the distribution, with the mean and standard deviation of the given
    ones. 8-bit integers (values, as a rule) are drawn from the given ones. Wider integers and booleans (indices,
    lengths, masks) are copied where other values vary; otherwise they are drawn too, unless they are sorted. In timed
    calls they change their order, and the steps of sorted ones theirs, where the rival takes that. Constant tensors
    and CPU scalars are copied. Values of one sign, or between 0 and 1, stay so. If that does not suit, give a
    callable. One that takes a second argument, a function from size to size, is called with other sizes too:
    `lambda generator, near: (torch.randn(near(512), near(768), generator=generator),)`.
    flops, bytes: of one call, for the record and the roofline.
    label: the name in tables.
    against: the rival.
    reference: computes the right answer from the same arguments in float64. By default the rival does, with its
    parameters, constants and casts widened.
    writes: names or positions of arguments that the call writes. Those that the rival changes are found without it.
    reset: is called with the inputs (`inputs.args`, `inputs.kwargs`) before every sample, untimed, for kernels that
    keep state. calls_per_reset: calls that may follow one reset; by default any number.
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
    writes: tuple[str | int, ...] = ()
    reset: Callable[[Inputs], Any] | None = None
    calls_per_reset: int | None = None

    def __post_init__(self) -> None:
        put = object.__setattr__
        if isinstance(self.args, list):
            put(self, "args", tuple(self.args))
        elif not isinstance(self.args, tuple) and not callable(self.args):
            raise TypeError(
                f"args is {type(self.args).__name__}; it must be a tuple of arguments, or a callable that takes a "
                "torch.Generator and returns one (for a single tensor write args=(tensor,))"
            )
        elif not isinstance(self.args, tuple) and not (_takes(self.args, 1) or _takes(self.args, 2)):
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
        label_of(self.label)
        for what in ("against", "reference", "reset"):
            value = getattr(self, what)
            if value is not None and not callable(value):
                raise TypeError(f"{what} is {value!r}; it must be a callable")
        if not isinstance(self.writes, tuple | list) or not all(isinstance(one, str | int) for one in self.writes):
            raise TypeError(f"writes is {self.writes!r}; it must be a tuple of names or positions of arguments")
        put(self, "writes", tuple(self.writes))
        if self.calls_per_reset is not None:
            if self.reset is None:
                raise TypeError(f"calls_per_reset is {self.calls_per_reset!r}; it needs reset=, which it bounds")
            positive("calls_per_reset", self.calls_per_reset)

    @property
    def exchangeable(self) -> bool:
        """True for arguments that are redrawn one by one; those of a callable may belong together."""
        return not callable(self.args)

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
        return short_name(self.against) or NAMELESS_RIVAL

    def inputs(self, generator: torch.Generator, *, distribution: str = "normal") -> Inputs:
        """Fresh arguments. The distribution applies to redrawn tensors only, not to those that a callable makes."""
        if not callable(self.args):
            try:
                return Inputs(*redrawn(tuple(self.args), self.kwargs, generator, distribution))
            except NotImplementedError as error:
                said = str(error).partition("\n")[0].partition(". ")[0]
                raise UnjudgeableError(
                    f"the arguments of {self.label} cannot be drawn anew ({said[:120]}); give args= as a callable that "
                    "takes a torch.Generator and makes them"
                ) from error
        made = self.args(generator, _same) if _takes(self.args, 2) else self.args(generator)  # type: ignore[call-arg]
        args = tuple(made) if type(made) in (tuple, list) else (made,)
        return Inputs(args, redrawn((), self.kwargs, generator, distribution)[1])

    def hard_inputs(self) -> tuple[str, ...]:
        """Those that change a given tensor; none for arguments that a callable makes."""
        return () if callable(self.args) else hard_for((self.args, self.kwargs))

    def neighbour(self, near: Callable[[int], int]) -> Problem | None:
        """The same computation at other sizes, if `args` is a callable that takes them."""
        if not callable(self.args) or not _takes(self.args, 2):
            return None
        make = self.args

        def nearby(generator: torch.Generator) -> Any:
            return make(generator, near)  # type: ignore[call-arg]  # the signature was looked at

        return replace(self, args=nearby)

    def rival(self, name: str) -> Callable[..., Any]:
        if self.against is None:
            raise ValueError(f"rival is {name!r}, but {self.label} has none: give a callable as against=")
        if name != self.default_rival:
            raise ValueError(f"rival is {name!r}; the rival of {self.label} is {self.default_rival!r}")
        return self.against

    def library(self) -> Callable[..., Any]:
        for found in (self.against, self.reference):
            if found is not None:  # a module may be false: an empty one, or one that refuses len()
                return found
        raise ReferenceUnavailableError(f"{self.label} has nothing to be compared with: pass reference= or against=")

    def answer(self, inputs: Inputs, *, rows: torch.Tensor | None = None) -> Any:
        """The values of `known_answer`."""
        return self.known_answer(inputs).values

    def known_answer(self, inputs: Inputs, *, rows: torch.Tensor | None = None) -> Answer:
        """The reference on arguments widened to float64; without one, the rival with all its operators in float64.

        A reference that does not take float64, or does not return it, is run like a rival. So is one whose parameters
        are narrower. ReferenceUnavailableError without reference and rival, or if the reference fails both ways.
        """
        from torch import OutOfMemoryError

        if self.reference is not None:
            try:
                values = map_tensors(inputs, _widen).call(self.reference)
            except Exception as error:  # whatever the user's function raises
                refused: Exception | None = error
            else:
                refused = None
                if is_float64(values):
                    return Answer(values)
            try:
                return in_float64(self.reference, inputs)
            except OutOfMemoryError:
                raise
            except Exception as error:
                cause = refused or error
                raise ReferenceUnavailableError(
                    f"the reference of {self.label} fails on arguments widened to float64 "
                    f"({type(cause).__name__}: {cause}); give a callable that takes them, or none: the rival then is "
                    "run in float64"
                ) from cause
        if self.against is None:
            raise ReferenceUnavailableError(
                f"{self.label} has no right answer to compare with: pass reference=, a callable that takes the same "
                "arguments in float64, or against="
            )
        found = None
        try:
            found = in_float64(self.against, inputs)
        except OutOfMemoryError:
            pass
        except Exception as error:  # a rival that does not run under a mode
            said = next(iter(f"{type(error).__name__}: {error}".splitlines()))
            found = Answer(map_tensors(inputs.call(self.against), _widen), gaps=(f"the rival itself ({said})",))
        if found is None:  # outside of the handler, whose exception holds what the attempt had allocated
            return in_little_memory(self.against, inputs)
        if found.gaps and (has_layouts(inputs) or has_layouts(found.values)):
            values = self._on_wide_layouts(inputs)
            return found if values is None else Answer(values)
        return found

    def _on_wide_layouts(self, inputs: Inputs) -> Any:
        """The rival's result on wide sparse or nested arguments, which the mode cannot widen; None if it refuses."""
        assert self.against is not None
        try:
            values = map_tensors(inputs, _widen).call(self.against)
        except Exception:  # whatever the user's function raises
            return None
        return values if is_float64(values) else None


def _same(size: int) -> int:
    return size


def _takes(function: Callable[..., Any], count: int) -> bool:
    """True if `function` can be called with that many arguments; True for one if its signature is not known."""
    try:
        inspect.signature(function).bind(*[None] * count)
    except ValueError:  # a built-in without a signature
        return count == 1
    except TypeError:
        return False
    return True


def _is_tensor(value: Any) -> bool:
    # Without importing torch: a tensor can only be here if torch is loaded.
    return hasattr(value, "data_ptr") and hasattr(value, "dtype")


def _describe(value: Any) -> Scalar:
    if _is_tensor(value):
        dtype = str(value.dtype).removeprefix("torch.")
        if value.is_nested and str(value.layout) == "torch.strided":  # it has no shape
            return f"{dtype}[{value.size(0)} nested]"
        return f"{dtype}[{'x'.join(map(str, value.shape))}]"
    return value if value is None or isinstance(value, int | float | str | bool) else type(value).__name__


def _widen(tensor: torch.Tensor) -> torch.Tensor:
    import torch

    if tensor.is_complex():
        return tensor.to(torch.complex128)
    return tensor.double() if tensor.is_floating_point() else tensor
