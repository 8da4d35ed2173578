"""The picture of levers: a bar for each, how many times as fast as in 16 bits a decoder layer is.

`cuda_llm_ops.levers` writes the record.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from perfsuite.report import svg

LABEL = "How many times as fast a decoder layer is with each lever of lower precision"
ROW, GAP, TOP = 20, 34, 14
NAMES, BARS, END = 250, 262, 700
"""Pixels: where names end, bars begin, and the longest bar ends."""

Row = dict[str, Any]


def heading(row: Row, context: int) -> str:
    """The step that rows are of."""
    if row["stage"] == "prefill":
        return f"prompt of {row['tokens']} tokens"
    sequences = row["sequences"]
    return f"decode, {sequences} sequence{'s' if sequences > 1 else ''} of {context} tokens"


def parts(rows: Sequence[Row], context: int, where: str) -> Iterator[tuple[float, str]]:
    """(bottom, element) of every element."""
    longest = max(row["gain"] for row in rows)
    y, before = float(TOP), ""
    for number, row in enumerate(rows):
        step = heading(row, context)
        if step != before:
            y += GAP if before else ROW
            yield y, svg.text(12, y, step, 'font-weight="bold" fill="#222"')
            before = step
        y += ROW
        length = (END - BARS) * row["gain"] / longest
        colour = svg.COLOURS[6] if row["gain"] == 1.0 else svg.COLOURS[2] if row["gain"] > 1.0 else svg.COLOURS[1]
        yield y, svg.text(NAMES, y, row["lever"], 'text-anchor="end" fill="#222"')
        yield y, f'<rect x="{BARS}" y="{y - 12:.1f}" width="{length:.1f}" height="14" fill="{colour}"/>'
        figure = f"{row['gain']:.2f} ({row['microseconds']:.1f} us a layer)"
        yield y, svg.text(BARS + length + 6, y, figure, 'fill="#222"')
        if number == len(rows) - 1:
            y += GAP
            yield y, svg.text(12, y, f"times as fast as in 16 bits; measured on one {where}", 'fill="#555"')


def drawn(record: Any, where: str) -> list[tuple[float, str]]:
    """(bottom, element) of every element; `where` says what the record was measured on."""
    return list(parts(record["rows"], record["environment"]["context"], where))
