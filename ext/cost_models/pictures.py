"""`python -m cost_models.pictures` draws docs/levers.svg from records/h200/levers.json; `--check` only compares them.

A bar for each lever: how many times as fast as in 16 bits a decoder layer is. `cuda_llm_ops.levers` writes the record.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from cost_models import host_library
from cost_models.errors import UsageError
from perfsuite.report import svg

RECORD, PICTURE = Path("records/h200/levers.json"), Path("docs/levers.svg")
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


def picture(record: Path) -> str:
    """The SVG. UsageError names a file that is no such record."""
    try:
        found = json.loads(record.read_text(encoding="utf-8"))
        about = found["environment"]
        where = f"{about['card']}, torch {about['torch']}, commit {str(about['commit'])[:10]}"
        drawn = list(parts(found["rows"], about["context"], where))
    except OSError as error:
        raise UsageError(f"{record} cannot be read: {error.strerror}") from None
    except (ValueError, TypeError, KeyError) as error:
        raise UsageError(f"{record} is no record of levers: {type(error).__name__}, {error}") from None
    height = max(bottom for bottom, _ in drawn) + TOP
    ground = f'<rect width="{svg.WIDTH}" height="{height:g}" fill="#fff"/>'
    label = "How many times as fast a decoder layer is with each lever of lower precision"
    return svg.document(height, [ground, *(element for _, element in drawn)], label=label, size=13) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw or compare: 0 done, 1 `--check` finds another picture, 2 bad input."""
    parser = argparse.ArgumentParser(prog="cost_models.pictures", description=__doc__)
    parser.add_argument("--record", type=Path, default=host_library.ROOT / RECORD, metavar="FILE")
    parser.add_argument("--picture", type=Path, default=host_library.ROOT / PICTURE, metavar="FILE")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 where the picture is out of date")
    given = parser.parse_args(arguments)
    try:
        made = picture(given.record)
    except UsageError as error:
        print(f"cost_models.pictures: {error}", file=sys.stderr)
        return 2
    if given.check:
        same = given.picture.is_file() and given.picture.read_text(encoding="utf-8") == made
        print("" if same else f"{given.picture}: out of date", end="" if same else "\n")
        return int(not same)
    given.picture.write_text(made, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
