"""Makes the JSON Schema of a record's lines from the dataclasses that read them."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import textwrap
import types
from collections.abc import Mapping
from enum import Enum
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from perfsuite.record.case import Case
from perfsuite.record.run_lines import Begin, End
from perfsuite.record.schema import MOST, Count, NonNegative, Positive, Scalar, fields_of

DRAFT = "https://json-schema.org/draft/2020-12/schema"
_PLAIN: dict[Any, dict[str, Any]] = {
    Any: {},
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number", "minimum": -MOST, "maximum": MOST},
    Positive: {"type": "number", "minimum": 1 / MOST, "maximum": MOST},
    NonNegative: {"type": "number", "minimum": 0, "maximum": MOST},
    Count: {"type": "integer", "minimum": 0, "maximum": MOST},
    Scalar: {"type": ["string", "number", "boolean", "null"]},
}


def json_schema() -> dict[str, Any]:
    """The schema of one line: the first, a case, or the last. Later versions add fields, so others are allowed."""
    return {
        "$schema": DRAFT,
        "title": "A line of a perfsuite record",
        "description": "A record is a file of JSON lines: a first line, one line a case, a last line.",
        "anyOf": [schema_of(Begin), schema_of(Case), schema_of(End)],
    }


def schema_of(kind: Any) -> dict[str, Any]:
    """The schema of a type that `schema.reader_of` knows."""
    origin, inside = get_origin(kind), get_args(kind)
    if kind in _PLAIN:
        return _PLAIN[kind]
    if origin in (Union, types.UnionType):
        return {"anyOf": [schema_of(inside[0]), {"type": "null"}]}
    if origin is Literal:
        return {"enum": list(inside)}
    if isinstance(kind, type) and issubclass(kind, Enum):
        return {"enum": [member.value for member in kind]}
    if origin is tuple:
        return {"type": "array", "items": schema_of(inside[0])}
    if origin is Mapping:
        return {"type": "object", "additionalProperties": schema_of(inside[1])}
    hints, told = get_type_hints(kind, include_extras=True), texts_below(kind)
    properties = {name: schema_of(hints[name]) for name in fields_of(kind)}
    return {
        "type": "object",
        "title": kind.__name__,
        "description": " ".join((inspect.getdoc(kind) or "").split("\n\n")[0].split()),
        "properties": {
            name: {"description": told[name], **one} if name in told else one for name, one in properties.items()
        },
        "required": [name for name, (_, needed) in fields_of(kind).items() if needed],
    }


def texts_below(kind: type) -> dict[str, str]:
    """Field of a dataclass or member of an enumeration -> the docstring that stands below it in the source."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if not (dataclasses.is_dataclass(base) or (issubclass(base, Enum) and base.__module__ != "enum")):
            continue
        (body,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        assert isinstance(body, ast.ClassDef)
        for field, below in zip(body.body, body.body[1:], strict=False):
            match field, below:
                case (
                    ast.AnnAssign(target=ast.Name(name)) | ast.Assign(targets=[ast.Name(name)]),
                    ast.Expr(value=ast.Constant(str(text))),
                ):
                    found[name] = " ".join(text.split())
    return found
