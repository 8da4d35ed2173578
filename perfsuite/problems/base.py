"""The base class of every problem: shapes, costs, inputs, the right answer and the libraries that rival it."""

from __future__ import annotations

import abc
import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Self

from .answers import Answer
from .checks import DTYPE_WORDS
from .words import READ, value_of

if TYPE_CHECKING:
    import argparse

    import torch

Scalar = int | float | str | bool | None


class RivalUnavailableError(RuntimeError):
    """The rival cannot run this problem on this device; the message gives the reason."""


class ReferenceUnavailableError(RuntimeError):
    """The problem has no float64 answer to compare with; the message names what is missing."""


@dataclass(frozen=True)
class Inputs:
    """The arguments of one call, `function(*args, **kwargs)`: tensors in `args`, plain options in `kwargs`."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    def call(self, function: Callable[..., Any]) -> Any:
        """Call `function` with these arguments and return its result."""
        return function(*self.args, **self.kwargs)


class Problem(abc.ABC):
    """One computation at one size.

    A family is a frozen dataclass that derives from this class, in a test file or in perfsuite/problems/families. Its
    fields are the parameters, such as sizes and a dtype. It must define `family`, `inputs` and `reference`; all other
    members have a default. Families import torch only inside methods.
    """

    family: ClassVar[str]
    """The family's name in records and on the command line: "gemm", "rmsnorm"."""
    candidate: ClassVar[str | None] = None
    """The kernel that commands measure by default, as "module:function"; None if they must name one."""
    hard_distributions: ClassVar[tuple[str, ...]] = ("dominant", "constant-rows")
    """Distributions of inputs on which careless kernels fail. Small problems are examined on each of them."""
    vetted: ClassVar[bool] = False
    """True if the inputs are known to vary, and the answer to depend on them. Otherwise examinations test both."""

    @abc.abstractmethod
    def inputs(self, generator: torch.Generator, *, distribution: str = "normal") -> Inputs:
        """New arguments of one call, on the generator's device.

        distribution: a name in perfsuite.problems.DISTRIBUTIONS; `problems.distributions.draw` draws tensors from it.
        """

    def reference(self, inputs: Inputs, *, rows: torch.Tensor | None = None) -> Any:
        """The right answer in float64, on the inputs' device: a tensor, or a nest of tensors in the results' form.

        rows: indices of the rows to compute, along the next to last axis of the result; None for all rows. A family
        without a `row_count` may ignore it. Compute large answers in blocks, so that temporaries fit beside the case.
        """
        raise NotImplementedError

    def answer(self, inputs: Inputs, *, rows: torch.Tensor | None = None) -> Any:
        """The right answer, as the oracle asks for it: that of `reference`, once its dtype and its rows are checked.

        ReferenceUnavailableError if they are wrong. A family that cannot always give an answer overrides this.
        """
        import torch
        from torch.utils._pytree import tree_leaves

        found = self.reference(inputs, rows=rows)
        for one in tree_leaves(found):
            if (one.is_floating_point() or one.is_complex()) and torch.finfo(one.dtype).bits < 64:
                raise ReferenceUnavailableError(
                    f"the reference of {self.family} {self.name} returns {one.dtype}; it must compute in float64"
                )
            if rows is not None and self.row_count is not None and one.shape[-2:-1] != (len(rows),):
                raise ReferenceUnavailableError(
                    f"the reference of {self.family} {self.name} returns shape {tuple(one.shape)} for {len(rows)} "
                    "rows; it must compute the given rows alone, or row_count must be None"
                )
        return found

    def known_answer(self, inputs: Inputs, *, rows: torch.Tensor | None = None) -> Answer:
        """`answer`, with what is known of its precision. Families compute all of it in float64."""
        return Answer(self.answer(inputs, rows=rows))

    def hard_inputs(self) -> tuple[str, ...]:
        """Names of the hard inputs that this problem has, which `inputs` takes as a distribution."""
        return self.hard_distributions

    @property
    def row_count(self) -> int | None:
        """Rows along the next to last axis of the result; None if `reference` cannot compute some of them alone."""
        return None

    @property
    def exchangeable(self) -> bool:
        """True if elements of an operand may change places, and operands of one call those of another.

        The clock does so between rounds, with floating-point values and bytes. False if tensors belong together, or if
        a tensor has an order or a symmetry: then whole sets of inputs take each other's places.
        """
        return True

    @property
    def name(self) -> str:
        """A short name, unique within the family: "4096x1024 float16"."""
        sizes, dtype, words = [], "", []
        for one in _fields(self):
            value = getattr(self, one.name)
            if _is_size(one):
                sizes.append(str(value))
            elif one.name == "dtype":
                dtype = str(_plain(value))
            elif value != _default(one):
                word = one.name.replace("_", "-")
                words.append(word if value is True else f"{word} {_plain(value)}")
        return " ".join(filter(None, ["x".join(sizes), dtype, *words]))

    @property
    def params(self) -> dict[str, Scalar]:
        """Every parameter that defines the computation, as a plain value, for the record."""
        return {one.name: _plain(getattr(self, one.name)) for one in _fields(self)}

    @property
    def result_dtype(self) -> str | None:
        """The dtype of the results, by name; None if the rival's result decides."""
        return None

    @property
    def flops(self) -> float | None:
        """Floating-point operations of one call; a multiply-add counts as two. None if unknown."""
        return None

    @property
    def bytes(self) -> float | None:
        """Bytes that one call must move: each input read once, each output written once. None if unknown."""
        return None

    @property
    def default_rival(self) -> str | None:
        """The rival of a case that names no rival; None if the family has no rival."""
        return next(iter(self.rival_names()), None)

    @property
    def yardstick(self) -> str | None:
        """The rival whose error sets the tolerance, whichever rival is timed; None for the one that is timed."""
        return None

    def called(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The computation that is judged and timed, made of a candidate's function: by default the function itself."""
        return function

    def own_rivals(self) -> Mapping[str, Callable[..., Any]]:
        """Rivals that the family itself defines, by name; each takes the same arguments as a candidate."""
        return {}

    def rival_names(self) -> tuple[str, ...]:
        """The names that `rival` accepts: of perfsuite/problems/rivals that serve the family, then of `own_rivals`."""
        from .rivals import rivals_for

        return (*rivals_for(self.family), *self.own_rivals())

    def rival(self, name: str) -> Callable[..., Any]:
        """The rival of that name, which takes a candidate's arguments; ValueError if there is no such rival."""
        from .rivals import rivals_for

        own, served = self.own_rivals(), rivals_for(self.family)
        if name in own:
            return own[name]
        if name in served:
            found: Callable[..., Any] = served[name].rival(self, name)
            return found
        known = ", ".join(self.rival_names()) or "a callable: the family has none of its own"
        raise ValueError(f"rival is {name!r}; a rival of {self.family} must be one of {known}")

    def library(self) -> Callable[..., Any]:
        """The function whose error sets the tolerance if a case names no rival; by default the default rival."""
        if self.default_rival is None:
            raise ReferenceUnavailableError(
                f"{self.family} {self.name} has no library to compare with: define own_rivals(), or pass against="
            )
        return self.rival(self.default_rival)

    def in_order(
        self, inputs: Inputs, right: torch.Tensor, rows: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor] | None:
        """(a sample of the result from float32 sums in order, the same sample of `right`); None if unknown.

        A library may add in an order with smaller errors. For float32 results, these plain sums widen the tolerance.
        right: the float64 answer; with `rows`, only those rows of it.
        """
        return None

    def neighbour(self, near: Callable[[int], int]) -> Problem | None:
        """The same computation with each size replaced by `near(size)`; None if no size may change.

        Candidates are examined on it, so that a kernel which is right at the listed sizes only is found.
        """
        return None

    def grown(self, factor: int) -> Problem:
        """The same computation at `factor` times the sequence length; ValueError if it has no such length."""
        raise ValueError(
            f"growth needs a problem with a sequence length, such as Attention; {self.family} does not define grown()"
        )

    @property
    def innermost(self) -> str | None:
        """The parameter that decides how rows are aligned in memory, such as "head_dim"; None if no parameter does."""
        return None

    def variations(self) -> tuple[Problem, ...]:
        """Problems with other ratios of FLOPs to bytes; `perfsuite regime` compares times on them to find the bound."""
        return ()

    bench_columns: ClassVar[Mapping[str, str]] = {}
    """Heads of the first columns of `perfsuite bench`, and the parameter that each shows; by default one, the size."""

    @classmethod
    def add_options(cls, parser: argparse.ArgumentParser) -> None:
        """Add the options by which `perfsuite bench FAMILY` describes problems to `parser`."""
        parser.add_argument(
            "--shapes", nargs="+", required=True, metavar="SHAPE", help=f"as in {cls.family}:SHAPE[:WORD...]"
        )

    @classmethod
    def from_options(cls, options: argparse.Namespace) -> list[Self]:
        """The problems that parsed options describe; ValueError for a bad value. `options.dtype` may be None."""
        dtype = [options.dtype] if options.dtype else []
        return [cls.parse(shape, [*words, *dtype]) for shape, *words in (text.split(":") for text in options.shapes)]

    @classmethod
    def parse(cls, shape: str, words: Sequence[str]) -> Self:
        """The problem of a command line, such as "4096x1024" and the words "bf16", "causal"; ValueError if bad.

        The shape gives the whole numbers without a default, in order. A word gives the dtype, turns a flag on, or names
        another parameter; the next word is then its value.
        """
        sizes = [one.name for one in _fields(cls) if _is_size(one)]
        parts = shape.split("x")
        if len(parts) != len(sizes) or not all(part.isdecimal() for part in parts):
            raise ValueError(f"the shape is {shape!r}; it must be {' x '.join(sizes)}, in whole numbers")
        return cls(**dict(zip(sizes, map(int, parts), strict=True)) | cls.parse_words(words))

    more_words: ClassVar[tuple[str, ...]] = ()
    """Words that `parse_words` of a subclass knows beside the names of parameters."""
    phrases: ClassVar[tuple[str, ...]] = ()
    """Regular expressions of what `name` says by more than a parameter's name: each group is named as its parameter."""

    @classmethod
    def parse_words(cls, words: Sequence[str]) -> dict[str, Any]:
        """The parameters that the words after a shape give, by name; ValueError for an unknown word."""
        given, words = cls._parse_phrases(" ".join(words))
        others = {one.name.replace("_", "-"): one for one in _fields(cls) if not _is_size(one) and one.name != "dtype"}
        has_dtype = any(one.name == "dtype" for one in _fields(cls))
        rest = iter(words)
        for word in rest:
            one = others.get(word.replace("_", "-"))
            if has_dtype and word in DTYPE_WORDS:
                given["dtype"] = DTYPE_WORDS[word]
            elif one is not None and _kind(one) == "bool":
                given[one.name] = True
            elif one is not None and (kind := _kind(one)) in READ:
                given[one.name] = value_of(word, next(rest, None), kind)
            else:
                known = [name for name, one in others.items() if _kind(one) in {"bool", *READ}]
                known = [*(DTYPE_WORDS if has_dtype else ()), *known, *cls.more_words]
                raise ValueError(f"{word!r} is not known; after the shape there may be {', '.join(known)}")
        return given

    @classmethod
    def _parse_phrases(cls, text: str) -> tuple[dict[str, Any], list[str]]:
        """The parameters that phrases of a name give, and the other words."""
        kinds = {one.name: _kind(one) for one in _fields(cls)} if cls.phrases else {}
        given: dict[str, Any] = {}
        for phrase in cls.phrases:
            if found := re.search(rf"(?<!\S){phrase}(?!\S)", text):
                for name, value in found.groupdict().items():
                    if value is not None:
                        given[name] = kinds[name] == "bool" or value_of(name, value, kinds[name])
                text = f"{text[: found.start()]} {text[found.end() :]}"
        return given, text.split()


def _fields(problem: Any) -> tuple[dataclasses.Field[Any], ...]:
    if not dataclasses.is_dataclass(problem):
        kind = problem if isinstance(problem, type) else type(problem)
        raise TypeError(f"{kind.__name__} must be a frozen dataclass, or define name, params and parse itself")
    return tuple(one for one in dataclasses.fields(problem) if one.init)


def _kind(one: dataclasses.Field[Any]) -> str:
    """The field's type as it is written, without a trailing "| None"."""
    text = one.type if isinstance(one.type, str) else getattr(one.type, "__name__", str(one.type))
    return text.replace(" ", "").removesuffix("|None")


def _is_size(one: dataclasses.Field[Any]) -> bool:
    return _kind(one) == "int" and _default(one) is dataclasses.MISSING


def _default(one: dataclasses.Field[Any]) -> Any:
    """The field's default; dataclasses.MISSING if it has no default."""
    return one.default if one.default_factory is dataclasses.MISSING else one.default_factory()


def _plain(value: Any) -> Scalar:
    """A parameter as one plain value: a sequence joined by commas, another object by its name or its type's name."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple | list):
        return ",".join(str(_plain(item)) for item in value)
    named = str(value).removeprefix("torch.")
    return named if named.isidentifier() else str(getattr(value, "__name__", type(value).__name__))
