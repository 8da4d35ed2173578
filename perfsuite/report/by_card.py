"""Renders a record of several card models as one table: a row a case, and a column a card model."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from perfsuite.record.case import Case
from perfsuite.report import figures, markdown

NO_CARD = "CPU"
"""The head of the column of cases that needed no card, and of the portable backend."""
_Key = tuple[str | None, int | None, str, str | None]


def card(case: Case) -> str:
    """The head of a case's column."""
    return case.gpu or NO_CARD


def cards(cases: Sequence[Case]) -> list[str]:
    """The heads of the columns, in alphabetical order, that of no card last."""
    return sorted({card(case) for case in cases}, key=lambda name: (name == NO_CARD, name))


def of_cards(cases: Sequence[Case]) -> dict[_Key, dict[str, Case]]:
    """Test, call, case and state of the cache -> card -> case; of several cases in one place the worst counts."""
    found: dict[_Key, dict[str, Case]] = defaultdict(dict)
    for case in reversed(figures.worst_first(cases)):
        found[case.test, case.call, case.case, case.cache][card(case)] = case
    order = {(case.test, case.call, case.case, case.cache): None for case in cases}
    return {key: found[key] for key in order}


def rows(cases: Sequence[Case]) -> list[tuple[str, list[str]]]:
    """(worst verdict, cells) of the head, with an empty verdict, and of each row, the worst first."""
    names = cards(cases)
    made = [("", ["case", "rival", "target", *names])]
    whole = of_cards(cases).values()
    for row in sorted(whole, key=lambda row: min(map(figures.badness, row.values()))):
        worst = figures.worst_first(list(row.values()))[0]
        targets = dict.fromkeys(figures.target(row[name]) for name in names if name in row)
        cells = [_cell(row.get(name)) for name in names]
        made.append((worst.verdict, [figures.label(worst), figures.rival(worst), " / ".join(targets), *cells]))
    return made


def table(cases: Sequence[Case]) -> list[tuple[str, str]]:
    """(verdict, line) of each row, for a terminal."""
    made = rows(cases)
    widths = [max(map(len, column)) for column in zip(*(cells for _, cells in made), strict=True)]
    return [(verdict, "  ".join(map(str.ljust, cells, widths)).rstrip()) for verdict, cells in made]


def markdown_table(cases: Sequence[Case]) -> str:
    """The same table in markdown."""
    (_, head), *made = [(verdict, list(map(markdown.escaped, cells))) for verdict, cells in rows(cases)]
    return markdown.grid([head, ["---"] * 3 + ["---:"] * (len(head) - 3), *(cells for _, cells in made)])


def counts(cases: Sequence[Case]) -> Mapping[str, str]:
    """Card -> "12 met, 1 missed"."""
    return {name: figures.counts([case for case in cases if card(case) == name]) for name in cards(cases)}


def _cell(case: Case | None) -> str:
    """ "MET 1.02 [1.01-1.03]"; the cell of a card that has no such case is empty."""
    if case is None:
        return ""
    value = figures.speed(case)
    if value is None:
        return str(case.verdict)
    ends = "" if case.speed_low is None else f" [{figures.interval(case)}]"
    return f"{case.verdict} {figures.ratio(value)}{ends}"
