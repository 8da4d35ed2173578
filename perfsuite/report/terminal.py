"""Renders cases for a terminal: a table with the worst case first, and a sentence for each case that is not met."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence

from perfsuite.outcome import printable
from perfsuite.record.case import Case
from perfsuite.report import figures
from perfsuite.report.matching import matched, several_cards
from perfsuite.report.values import gated

WIDTH = 100
"""The width of a table in a document."""
NARROWEST = 20
"""No table is narrower: a test's name and a verdict need so much."""
_HEAD = (
    *("test", "card", "case", "rival", "value", "interval", "target", "to target", "last", "time"),
    *("verdict", "reason"),
)
_RIGHT = {"value", "target", "to target", "last", "time"}
_LEAST = {"case": 16, "test": 16}
"""Columns that are shortened, the longer one first, with the width that each keeps while another column can go."""
_EASY = {"case": 26, "test": 22}
"""The same while a column can go that the sentence below the table tells too."""
_LEFT_OUT = (
    *((name, _EASY) for name in ("reason", "interval", "target")),
    *((name, _LEAST) for name in ("rival", "last", "time", "case", "value", "to target")),
)
"""The order in which columns go where the table is too wide, each with the widths that its going must save."""
_LEAST_FUNCTION = 4
_CODES = {"bold": "1", "red": "31", "bold red": "1;31", "green": "32", "yellow": "33"}


def table(cases: Sequence[Case], width: int = WIDTH, *, before: Sequence[Case] = ()) -> list[tuple[str, str]]:
    """(verdict, line) of the head, with an empty verdict, and of each case, worst first. `width` bounds all lines.

    before: the cases of the last run, for a column with their values. A column that is empty in every row is left out,
    and in a narrow terminal more of them; rows are never wrapped.
    """
    last = {id(pair.after): pair.before for pair in matched(before, cases) if pair.after is not None}
    ordered = figures.worst_first(cases)
    several = several_cards(cases)
    cells = (_cells(case, last.get(id(case)), named=several) for case in ordered)
    rows = [dict(zip(_HEAD, row, strict=True)) for row in cells]
    widths = {
        name: max(len(name), *(len(row[name]) for row in rows))
        for name in _HEAD
        if any(row[name] not in ("-", "") for row in rows)
    }
    width = max(width, NARROWEST)
    for name, least in _LEFT_OUT:
        if sum(min(full, least.get(one, full)) + 2 for one, full in widths.items()) - 2 > width:
            widths.pop(name, None)
    while sum(widths.values()) + 2 * (len(widths) - 1) > width:
        long = [name for name in _LEAST if widths.get(name, 0) > (_LEAST[name] if len(widths) > 2 else 4)]
        if not long:
            break
        widths[max(long, key=lambda name: widths[name])] -= 1
    lines = [("", _line({name: name for name in widths}, widths))]
    return lines + [(case.verdict, _line(row, widths)) for case, row in zip(ordered, rows, strict=True)]


def sentences(cases: Sequence[Case]) -> list[tuple[str, str]]:
    """(verdict, sentence) of each case that is not met, worst first."""
    return [
        (case.verdict, printable(f"{case.verdict} {case.test or case.case}: {case.sentence}"))
        for case in figures.worst_first(cases)
        if case.verdict != "MET"
    ]


def brief(case: Case, width: int) -> str:
    """One line about a case that has just ended, of at most `width` columns."""
    value, gap = figures.ratio(figures.speed(case)), to_target(case)
    parts = [case.verdict, *(one for one in (value, gap) if one != "-"), test_name(case), figures.pair(case)]
    return _short(printable("  ".join(parts)), max(width, NARROWEST))


def test_name(case: Case) -> str:
    """The test's name without its file; "-" if the record has none."""
    return (case.test or "-").rpartition("::")[2]


def to_target(case: Case) -> str:
    """ "-2.0 %": the distance from the target as a share of it."""
    gap = gated(case).to_target
    return "-" if gap is None else f"{100 * gap:+.1f} %"


def print_lines(lines: Iterable[tuple[str, str]], styles: Mapping[str, str]) -> None:
    """Print (kind, line) pairs, on a terminal in the style of their kind. NO_COLOR switches styles off."""
    styled = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    for kind, line in lines:
        code = _CODES[styles[kind]] if styled and kind in styles else None
        # An escape sequence in a name must not reach the terminal.
        plain = printable(line)
        print(f"\033[{code}m{plain}\033[0m" if code else plain)


def _cells(case: Case, last: Case | None, *, named: bool) -> tuple[str, ...]:
    card = (case.gpu or "CPU") if named else "-"
    label, rival, value, interval, target = figures.cells(case)
    if target == "-" and (share := gated(case).target):
        target = f"{share:.2f}"
    earlier = "-" if last is None or last.gpu != case.gpu else figures.ratio(figures.speed(last))
    figured = (value, interval, target, to_target(case), earlier, figures.seconds(gated(case).seconds))
    return tuple(map(printable, (test_name(case), card, label, rival, *figured, case.verdict, case.reason)))


def _line(row: Mapping[str, str], widths: Mapping[str, int]) -> str:
    padded = [f"{_short(row[name], width):{'>' if name in _RIGHT else '<'}{width}}" for name, width in widths.items()]
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
