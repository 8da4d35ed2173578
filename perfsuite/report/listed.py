"""Reads records that are one JSON object: an environment, and a list of lines that have the same fields."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from perfsuite.record.environment import Environment
from perfsuite.record.schema import Misfit, RecordError, reader_of
from perfsuite.report import markdown

Line = Mapping[str, Any]


def read_listed(
    path: Path, name: str, fields: Mapping[str, type], filters: Mapping[str, str]
) -> tuple[list[Line], str]:
    """(lines of the list `name`, words for the machine). RecordError for other files, and for any filter.

    fields: those that each line must have, with their types.
    """
    if filters:
        raise RecordError(f"{path}: the table of {name} takes no {', '.join(filters)}=")
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise RecordError(f"{path}: cannot be read as a record of {name}: {error}") from None
    if not isinstance(values, dict) or not isinstance(values.get("environment"), dict):
        raise RecordError(f"{path}: not a record of {name}: it has no environment")
    try:
        where = markdown.environment(reader_of(Environment)(values["environment"]))
    except Misfit as error:
        raise RecordError(f"{path}: {error.within('environment')}") from None
    lines = values.get(name)
    if not isinstance(lines, list) or not lines:
        raise RecordError(f"{path}: {name} must be a list of at least one line")
    for line in lines:
        if not isinstance(line, dict) or any(not isinstance(line.get(key), kind) for key, kind in fields.items()):
            raise RecordError(f"{path}: a line of {name} must hold {', '.join(fields)}; there is {line!r}")
    return lines, where
