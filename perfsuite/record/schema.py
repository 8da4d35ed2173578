"""Checks JSON values against the annotations of a dataclass, and turns Python values into JSON values.

The dataclass is the only description of the format. msgspec, pydantic and cattrs do the same, but each would be one
more dependency in place of these lines. Errors of msgspec and cattrs do not show the value that they found; pydantic
takes longest to import.
"""

from __future__ import annotations

import dataclasses
import math
import types
from collections.abc import Callable, Mapping
from enum import Enum
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from perfsuite.outcome import UserError

Positive = Annotated[float, "over 0"]
NonNegative = Annotated[float, "at least 0"]
Reader = Callable[[Any], Any]
"""Turns a JSON value into a value of its type, or raises Misfit."""
_MOST_SHOWN = 80
_MOST = 1e100
"""No measurement is larger; beyond it, products and ratios of two numbers could overflow."""


class RecordError(UserError):
    """A file is not a record, or not a whole one; the text names the file, the line and what is wrong."""


class Misfit(ValueError):
    """A value does not fit its field."""

    def __init__(self, value: object, allowed: str, *path: str) -> None:
        shown = repr(value)
        shown = shown if len(shown) <= _MOST_SHOWN else f"{shown[:_MOST_SHOWN]}..."
        super().__init__(f"{''.join(path).removeprefix('.')} is {shown}; it must be {allowed}")
        self.value, self.allowed, self.path = value, allowed, path

    def within(self, step: str) -> Misfit:
        """The same, seen from the object or list that holds the value."""
        return Misfit(self.value, self.allowed, step, *self.path)


@cache
def fields_of(kind: Any) -> dict[str, tuple[Reader, bool]]:
    """Field name -> (what reads it, whether every object must have it), for a dataclass."""
    hints = get_type_hints(kind, include_extras=True)
    missing = dataclasses.MISSING
    return {
        field.name: (reader_of(hints[field.name]), field.default is missing and field.default_factory is missing)
        for field in dataclasses.fields(kind)
        if field.init
    }


def lacking(kind: Any, value: Mapping[str, Any]) -> list[str]:
    """The fields that every object of the dataclass must have and `value` has not."""
    return [name for name, (_, needed) in fields_of(kind).items() if needed and name not in value]


def read_fields(kind: Any, value: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of the dataclass that `value` has, as the constructor takes them; other fields are left out."""
    fields = fields_of(kind)
    if absent := lacking(kind, value):
        raise Misfit(value, f"an object with {', '.join(absent)}")
    return {name: _inside(f".{name}", read, value[name]) for name, (read, _) in fields.items() if name in value}


@cache
def reader_of(kind: Any) -> Reader:
    """The reader of a type: plain, `| None`, Literal, Enum, tuple[X, ...], Mapping[str, X], or a dataclass of these."""
    origin, inside = get_origin(kind), get_args(kind)
    if kind is Any:
        return lambda value: value
    if kind in _PLAIN:
        return _PLAIN[kind]
    if origin in (Union, types.UnionType):
        return _or_null(*(reader_of(one) for one in inside if one is not types.NoneType))
    if origin is Literal:
        return _one_of({value: value for value in inside})
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _one_of({member.value: member for member in kind})
    if origin is tuple:
        return _list_of(reader_of(inside[0]))
    if origin is Mapping:
        return _object_of(reader_of(inside[1]))
    return _dataclass(kind)


def _plain_type(allowed: str, *kinds: type) -> Reader:
    def read(value: Any) -> Any:
        if type(value) not in kinds:
            raise Misfit(value, allowed)
        return value

    return read


def _number(allowed: str, *, least: float) -> Reader:
    def read(value: Any) -> float:
        if type(value) not in (int, float) or not least <= value <= _MOST:
            raise Misfit(value, allowed)
        return float(value)

    return read


_PLAIN: dict[Any, Reader] = {
    str: _plain_type("text", str),
    bool: _plain_type("true or false", bool),
    int: _plain_type("a whole number", int),
    float: _number(f"a number from {-_MOST:g} to {_MOST:g}", least=-_MOST),
    Positive: _number(f"a number from {1 / _MOST:g} to {_MOST:g}", least=1 / _MOST),
    NonNegative: _number(f"a number from 0 to {_MOST:g}", least=0.0),
}


def _or_null(read: Reader) -> Reader:
    def read_or_null(value: Any) -> Any:
        try:
            return None if value is None else read(value)
        except Misfit as error:
            raise error if error.path else Misfit(value, f"{error.allowed} or null") from None

    return read_or_null


def _one_of(known: Mapping[Any, Any]) -> Reader:
    def read(value: Any) -> Any:
        if not isinstance(value, str) or value not in known:
            raise Misfit(value, f"one of {', '.join(known)}")
        return known[value]

    return read


def _list_of(read: Reader) -> Reader:
    def read_all(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise Misfit(value, "a list")
        try:
            return tuple(map(read, value))
        except Misfit:
            return tuple(_inside(f"[{place}]", read, item) for place, item in enumerate(value))

    return read_all


def _object_of(read: Reader) -> Reader:
    def read_all(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise Misfit(value, "an object")
        return {name: _inside(f".{name}", read, item) for name, item in value.items()}

    return read_all


def _dataclass(kind: type[Any]) -> Reader:
    def read(value: Any) -> Any:
        if not isinstance(value, dict):
            raise Misfit(value, "an object")
        return kind(**read_fields(kind, value))  # its __post_init__ may raise Misfit as well

    return read


def _inside(step: str, read: Reader, value: Any) -> Any:
    try:
        return read(value)
    except Misfit as error:
        raise error.within(step) from None


def plain(value: Any) -> Any:
    """The same as JSON values: tuples become lists, NaN and infinity become null, keys become text."""
    if value is None or isinstance(value, bool | str):
        return str(value) if isinstance(value, str) else value
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
    return str(value)
