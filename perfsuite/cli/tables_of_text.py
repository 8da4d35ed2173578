"""Markdown tables of plain text, and the first paragraph of a docstring."""

from __future__ import annotations

import inspect
from collections.abc import Iterable


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """A markdown table; a "|" in a cell is escaped."""
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def first_paragraph(documented: object) -> str:
    """The first paragraph of an object's docstring, on one line."""
    return " ".join((inspect.getdoc(documented) or "").partition("\n\n")[0].split())
