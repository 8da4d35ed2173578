"""Reads a case's line by msgspec, where it is installed, in a quarter of the time that `Case.of_json` takes.

The types come from `Case` itself, and are stricter wherever the two libraries differ. A line that they refuse is for
`Case.of_json`: either it is right, or the error shows the value and what is allowed. So the answers are the same with
msgspec and without. orjson takes as long to make plain objects, which must then be checked.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Mapping
from enum import Enum
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from perfsuite.record.case import SCHEMA, Case
from perfsuite.record.schema import MOST, Count, NonNegative, Positive, Scalar

_LARGEST = 2**63 - 1
_LEFT_OUT = ("samples", "discarded_samples")
"""Fields that a quick reader does not know. A line with them is refused."""


@cache
def quick_reader() -> Callable[[bytes], Case | None] | None:
    """A function from a line without samples to its case, or None for a line that `Case.of_json` has to read.

    The case has the fields of a `Case`, but no `line` and no methods. None without msgspec.
    """
    try:
        import msgspec
    except ModuleNotFoundError:
        return None
    bounded = {"schema": Annotated[int, msgspec.Meta(ge=-_LARGEST, le=SCHEMA)]}
    decode = msgspec.json.Decoder(_struct(Case, msgspec, bounded), strict=True).decode
    refused = (msgspec.MsgspecError, ValueError, RecursionError)

    def read(line: bytes) -> Any:
        try:
            return decode(line)
        except refused:
            return None

    return read


def _struct(kind: Any, msgspec: Any, bounded: Mapping[str, Any]) -> Any:
    """A type with the fields of a dataclass, which refuses all others."""
    hints, missing = get_type_hints(kind, include_extras=True), dataclasses.MISSING
    made: list[tuple[Any, ...]] = []
    for field in dataclasses.fields(kind):
        if not field.init or field.name in _LEFT_OUT:
            continue
        of_it = bounded.get(field.name) or _type(hints[field.name], msgspec)
        if field.default_factory is not missing:
            made.append((field.name, of_it, msgspec.field(default_factory=field.default_factory)))
        else:
            made.append((field.name, of_it) if field.default is missing else (field.name, of_it, field.default))
    return msgspec.defstruct(kind.__name__, made, kw_only=True, forbid_unknown_fields=True, gc=False)


def _type(kind: Any, msgspec: Any) -> Any:
    """The type for msgspec of an annotation that `record.schema` knows."""
    number = {
        float: msgspec.Meta(ge=-MOST, le=MOST),
        Positive: msgspec.Meta(ge=1 / MOST, le=MOST),
        NonNegative: msgspec.Meta(ge=0.0, le=MOST),
    }
    whole = {int: -_LARGEST, Count: 0}
    origin, inside = get_origin(kind), get_args(kind)
    if kind in number:
        return Annotated[float, number[kind]]
    if kind in whole:
        return Annotated[int, msgspec.Meta(ge=whole[kind], le=_LARGEST)]
    if kind is Scalar:
        return str | _type(float, msgspec) | _type(int, msgspec) | bool | None
    if origin in (Union, types.UnionType):
        return _type(inside[0], msgspec) | None
    if origin is tuple:
        return tuple[_type(inside[0], msgspec), ...]  # type: ignore[misc]
    if origin is Mapping:
        return dict[str, _type(inside[1], msgspec)]  # type: ignore[misc]
    if kind in (str, bool) or origin is Literal or (isinstance(kind, type) and issubclass(kind, Enum)):
        return kind
    if dataclasses.is_dataclass(kind) and not hasattr(kind, "__post_init__"):
        return _struct(kind, msgspec, {})
    raise TypeError(f"{kind} has no type for msgspec")
