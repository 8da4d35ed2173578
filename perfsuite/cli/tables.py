"""Tables on the terminal."""

from __future__ import annotations

from collections.abc import Sequence


def print_columns(rows: Sequence[Sequence[str]], *, left: int = 1) -> None:
    """Print rows of equal length; the first `left` columns are aligned to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        places = enumerate(zip(row, widths, strict=True))
        cells = [f"{cell:<{width}}" if place < left else f"{cell:>{width}}" for place, (cell, width) in places]
        print("  ".join(cells).rstrip())
