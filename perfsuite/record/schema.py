"""Checks JSON values against the annotations of a dataclass, and turns Python values into JSON values.

The dataclass is the only description of the format. msgspec, pydantic and cattrs would each be one more dependency.
Errors of msgspec and cattrs do not show the value that they found; pydantic takes longest to import.
"""

from __future__ import annotations

import dataclasses
import math
import types
from collections.abc import Callable, Mapping, Set
from enum import Enum
from functools import cache, lru_cache, partial
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from perfsuite.outcome import UserError, one_line

Positive = Annotated[float, "over 0"]
NonNegative = Annotated[float, "at least 0"]
Count = Annotated[int, "at least 0"]
Scalar = Annotated[object, "a plain value"]
"""Text, a number, true, false or null."""
Reader = Callable[[Any], Any]
"""Turns a JSON value into a value of its type, or raises Misfit."""
_MOST_SHOWN = 80
MOST = 1e100
"""No measurement is larger; beyond it, products and ratios of two numbers could overflow."""
_SCALARS = frozenset((str, bool, int, float, type(None)))
_PLAIN: dict[Any, tuple[tuple[type, ...], float | None, str]] = {
    str: ((str,), None, "text"),
    bool: ((bool,), None, "true or false"),
    int: ((int,), None, "a whole number"),
    float: ((int, float), -MOST, f"a number from {-MOST:g} to {MOST:g}"),
    Positive: ((int, float), 1 / MOST, f"a number from {1 / MOST:g} to {MOST:g}"),
    NonNegative: ((int, float), 0.0, f"a number from 0 to {MOST:g}"),
    Count: ((int,), 0, f"a whole number from 0 to {MOST:g}"),
}
"""Type -> JSON's types, the least number, and both in words."""


class RecordError(UserError):
    """A file is not a record, or not a whole one; the text names the file, the line and what is wrong.

    It is one line of at most 300 characters, whatever the file holds.
    """

    def __init__(self, sentence: str) -> None:
        super().__init__(one_line(sentence))


class Misfit(ValueError):
    """A value does not fit its field."""

    def __init__(self, value: object, allowed: str, path: str = "") -> None:
        shown = repr(value[:_MOST_SHOWN] if isinstance(value, str) else value)
        shown = shown if len(shown) <= _MOST_SHOWN else f"{shown[:_MOST_SHOWN]}..."
        super().__init__(f"{path.removeprefix('.')} is {shown}; it must be {allowed}")
        self.value, self.allowed, self.path = value, allowed, path

    def within(self, step: str) -> Misfit:
        """The same error, with its path from the object or list that holds the value."""
        return Misfit(self.value, self.allowed, step + self.path)


@cache
def fields_of(kind: Any) -> dict[str, tuple[Reader, bool]]:
    """Field name -> (its reader, True if every object must have it), for a dataclass."""
    hints, missing = get_type_hints(kind, include_extras=True), dataclasses.MISSING
    return {
        field.name: (reader_of(hints[field.name]), field.default is missing and field.default_factory is missing)
        for field in dataclasses.fields(kind)
        if field.init
    }


def lacking(kind: Any, value: Mapping[str, Any]) -> list[str]:
    """The mandatory fields of the dataclass that `value` lacks."""
    return [] if _mandatory(kind) <= value.keys() else [name for name in _mandatory(kind) if name not in value]


@cache
def _mandatory(kind: Any) -> Set[str]:
    """The fields that every object must have, in their order."""
    return {name: None for name, (_, needed) in fields_of(kind).items() if needed}.keys()


def read_fields(kind: Any, value: Any) -> dict[str, Any]:
    """The fields of the dataclass that `value` has, as the constructor takes them; other fields are left out."""
    if not isinstance(value, dict):
        raise Misfit(value, "an object")
    shape = _shape_of(kind, tuple(value), tuple(map(type, value.values())))
    if shape.absent:
        raise Misfit(value, f"an object with {', '.join(shape.absent)}")
    found = dict(value)
    for name in shape.unknown:
        del found[name]
    for name, read, least in shape.floats:
        if not least <= found[name] <= MOST:
            found[name] = _inside(f".{name}", read, found[name])
    for name, read in shape.others:
        try:
            found[name] = read(found[name])
        except Misfit as error:
            raise error.within(f".{name}") from None
    return found


@dataclasses.dataclass(frozen=True)
class _Shape:
    """The work that is left for an object whose fields and types are known: most values are right as they are."""

    absent: list[str]
    """Mandatory fields that it lacks."""
    unknown: list[str]
    """Fields that the dataclass does not have."""
    floats: list[tuple[str, Reader, float]]
    """(field, its reader, the least value) of floats, which need two comparisons."""
    others: list[tuple[str, Reader]]
    """Fields that their reader must look at."""


@lru_cache(maxsize=256)
def _shape_of(kind: Any, names: tuple[str, ...], types_of: tuple[type, ...]) -> _Shape:
    """The shape of an object. The lines of a record have few shapes and millions of values."""
    known = fields_of(kind)
    here = dict(zip(names, types_of, strict=True))
    floats: list[tuple[str, Reader, float]] = []
    others: list[tuple[str, Reader]] = []
    for name, (read, _) in known.items():
        if name not in here or here[name] in _as_they_are(read):
            continue
        least = _least_float(read) if here[name] is float else None
        if least is None:
            others.append((name, read))
        else:
            floats.append((name, read, least))
    return _Shape(lacking(kind, here), [name for name in names if name not in known], floats, others)


@cache
def _as_they_are(read: Reader) -> frozenset[type]:
    if not isinstance(read, partial):
        return frozenset()
    if read.func is _read_or_null:
        return _as_they_are(read.args[0]) | {type(None)}
    if read.func is _read_plain and read.args[1] is None:
        return frozenset(read.args[0])
    return frozenset()


@cache
def reader_of(kind: Any) -> Reader:
    """The reader of a type: plain, X | None, Literal, Enum, tuple[X, ...], Mapping[str, X], or a dataclass of these."""
    origin, inside = get_origin(kind), get_args(kind)
    if kind is Any:
        return lambda value: value
    if kind is Scalar:
        return _read_scalar
    if kind in _PLAIN:
        return partial(_read_plain, *_PLAIN[kind])
    if origin in (Union, types.UnionType):
        return partial(_read_or_null, reader_of(inside[0]))
    if origin is Literal:
        return partial(_read_one_of, {value: value for value in inside})
    if isinstance(kind, type) and issubclass(kind, Enum):
        return partial(_read_one_of, {member.value: member for member in kind})
    if origin is tuple:
        return partial(_read_list, reader_of(inside[0]))
    if origin is Mapping:
        return partial(_read_object, reader_of(inside[1]))
    return partial(_read_dataclass, kind, _plain_defaults(kind))


@cache
def _plain_defaults(kind: Any) -> dict[str, Any] | None:
    """Field -> default of a dataclass whose objects are only their fields; None if its constructor does more."""
    every, missing = dataclasses.fields(kind), dataclasses.MISSING
    made = any(field.default_factory is not missing or not field.init for field in every)
    if made or hasattr(kind, "__post_init__") or hasattr(kind, "__slots__"):
        return None
    return {field.name: field.default for field in every if field.default is not missing}


def _read_dataclass(kind: Any, defaults: Mapping[str, Any] | None, value: Any) -> Any:
    found = read_fields(kind, value)
    if defaults is None:
        return kind(**found)  # its __post_init__ may raise Misfit as well
    made = object.__new__(kind)  # a frozen dataclass sets each of its fields by a call
    made.__dict__.update(defaults)
    made.__dict__.update(found)
    return made


def _read_plain(kinds: tuple[type, ...], least: float | None, allowed: str, value: Any) -> Any:
    if type(value) not in kinds or (least is not None and not least <= value <= MOST):
        raise Misfit(value, allowed)
    return value if least is None or float not in kinds else float(value)


def _read_scalar(value: Any) -> Any:
    if type(value) not in _SCALARS or (type(value) in (int, float) and abs(value) > MOST):
        raise Misfit(value, "text, a number, true, false or null")
    return value


def _read_or_null(read: Reader, value: Any) -> Any:
    try:
        return None if value is None else read(value)
    except Misfit as error:
        raise error if error.path else Misfit(value, f"{error.allowed} or null") from None


def _read_one_of(known: Mapping[str, Any], value: Any) -> Any:
    if not isinstance(value, str) or value not in known:
        raise Misfit(value, f"one of {', '.join(known)}")
    return known[value]


def _read_list(read: Reader, value: Any) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise Misfit(value, "a list")
    if _need_no_reading(value, read):
        return tuple(value)
    try:
        return tuple(map(read, value))
    except Misfit:
        return tuple(_inside(f"[{place}]", read, item) for place, item in enumerate(value))


def _least_float(read: Reader) -> float | None:
    """The least float of a reader of floats, or of floats and null; None for other readers."""
    if not isinstance(read, partial):
        return None
    if read.func is _read_or_null:
        return _least_float(read.args[0])
    return read.args[1] if read.func is _read_plain and float in read.args[0] else None


def _need_no_reading(values: list[Any], read: Reader) -> bool:
    """True if all values are right as they are; False says nothing. Samples are long, so this looks at all at once."""
    types_here = set(map(type, values))
    if read is _read_scalar:
        return types_here <= _SCALARS and all(abs(one) <= MOST for one in values if type(one) in (int, float))
    if types_here <= _as_they_are(read):
        return True
    least = _least_float(read)
    return types_here == {float} and least is not None and least <= min(values) and max(values) <= MOST


def _read_object(read: Reader, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Misfit(value, "an object")
    if _need_no_reading(list(value.values()), read):
        return value
    return {name: _inside(f".{name}", read, item) for name, item in value.items()}


def _inside(step: str, read: Reader, value: Any) -> Any:
    try:
        return read(value)
    except Misfit as error:
        raise error.within(step) from None


def plain(value: Any) -> Any:
    """The same as JSON values: tuples become lists, NaN and infinity become null, keys become text."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if hasattr(value, "item"):  # a numpy or torch scalar
        return plain(value.item())
    text = str(value)
    # Half of a surrogate pair stands for a byte that is not UTF-8, in the name of a file. No program could print it.
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()
