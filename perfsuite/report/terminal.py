"""Renders cases for a terminal: a table with the worst case first, and a sentence for each case that is not met."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence

from perfsuite.outcome import printable
from perfsuite.record.case import Case
from perfsuite.report import figures

WIDTH = 100
"""No line of the table is longer."""
_HEAD = ("case", "rival", "speed", "interval", "target", "verdict", "reason")
_RIGHT = {"speed", "target"}
_LEAST_CASE = 20
_LEAST_FUNCTION = 4
_CODES = {"bold": "1", "red": "31", "bold red": "1;31", "green": "32", "yellow": "33"}


def table(cases: Sequence[Case], width: int = WIDTH) -> list[tuple[str, str]]:
    """(verdict, line) of the head, with an empty verdict, and of each case, worst first. `width` bounds all lines."""
    rows = [(*figures.cells(case), case.verdict, case.reason) for case in figures.worst_first(cases)]
    widths = [max(len(row[column]) for row in [_HEAD, *rows]) for column in range(len(_HEAD))]
    # The case is shortened first, then the rival; figures and verdicts stay whole.
    for column, least in ((0, _LEAST_CASE), (1, 8)):
        excess = sum(widths) + 2 * (len(widths) - 1) - width
        widths[column] = max(min(least, widths[column]), widths[column] - max(excess, 0))
    lines = [("", _line(_HEAD, widths))]
    return lines + [(row[5], _line(row, widths)) for row in rows]


def sentences(cases: Sequence[Case]) -> list[tuple[str, str]]:
    """(verdict, sentence) of each case that is not met, worst first."""
    return [
        (case.verdict, f"{case.verdict} {case.test or case.case}: {case.sentence}")
        for case in figures.worst_first(cases)
        if case.verdict != "MET"
    ]


def print_lines(lines: Iterable[tuple[str, str]], styles: Mapping[str, str]) -> None:
    """Print (kind, line) pairs, on a terminal in the style of their kind. NO_COLOR switches styles off."""
    styled = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    for kind, line in lines:
        code = _CODES[styles[kind]] if styled and kind in styles else None
        # An escape sequence in a name must not reach the terminal.
        plain = printable(line)
        print(f"\033[{code}m{plain}\033[0m" if code else plain)


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    padded = [
        f"{_short(cell, width):{'>' if name in _RIGHT else '<'}{width}}"
        for name, cell, width in zip(_HEAD, row, widths, strict=True)
    ]
    return "  ".join(padded).rstrip()


def _short(cell: str, width: int) -> str:
    """The cell in `width` characters. Of a case, the function's name is shortened first, else the middle."""
    if len(cell) <= width:
        return cell
    function, _, problem = cell.partition(" ")
    room = width - len(problem) - 3
    if problem and room >= _LEAST_FUNCTION:
        return f"{function[:room]}.. {problem}"
    head = (width - 2) // 2
    return f"{cell[:head]}..{cell[len(cell) - (width - 2 - head) :]}"
