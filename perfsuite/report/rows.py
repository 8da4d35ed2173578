"""Renders a file of results, {"environment": {...}, "rows": [{...}, ...]}: each row is a row of the table."""

from __future__ import annotations

import json
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from perfsuite.record.schema import RecordError
from perfsuite.report import markdown

KEY = "key"
"""The field that tells rows apart in the file; no table shows it."""


def read_rows(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """(environment, rows) of a file of results. Raises RecordError for other files."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise RecordError(f"{path}: cannot be read as results: {error}") from None
    if not isinstance(values, dict) or not isinstance(values.get("environment"), dict):
        raise RecordError(f"{path}: no results: there is no environment")
    rows = values.get("rows")
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) and row for row in rows):
        raise RecordError(f"{path}: rows must be a list of at least one object")
    if len({tuple(row) for row in rows}) > 1:
        raise RecordError(f"{path}: all rows must have the same fields")
    return values["environment"], rows


def rows_table(path: Path, filters: Mapping[str, str]) -> str:
    """The rows whose fields match the filters, and a line that names the commit and the date."""
    environment, rows = read_rows(path)
    fitting = [row for row in rows if all(fnmatchcase(str(row.get(name)), glob) for name, glob in filters.items())]
    if not fitting:
        raise RecordError(f"{path}: no row fits {' '.join(f'{name}={glob}' for name, glob in filters.items())}")
    names = [name for name in fitting[0] if name != KEY and name not in filters]
    table = [tuple(names), ("---",) * len(names)]
    table += [tuple(markdown.escaped(str(row[name])) for name in names) for row in fitting]
    shown = {name: str(value)[:10] if name == "commit" else str(value) for name, value in environment.items() if value}
    said = ", ".join(f"{name} {value}" for name, value in shown.items())
    return f"{markdown.grid(table)}\n\nMeasured with {markdown.escaped(said)}."
