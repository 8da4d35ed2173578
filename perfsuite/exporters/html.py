"""Write a record as one HTML page that needs no other file.

The page says what needs attention, lists all cases in a grid, and shows each case in depth.
`perfsuite report --html` also knows the record's history, and compares with a base.
"""

from __future__ import annotations

from collections.abc import Sequence

from perfsuite.analyze.roofline_ceilings import from_data_sheet
from perfsuite.record.case import Case
from perfsuite.report.page.data import Costs, report_of
from perfsuite.report.page.render import render
from perfsuite.report.page.timeline import Version
from perfsuite.report.rebuilt import problem_of

HELP = "one self-contained HTML page: what needs attention, a grid, each case in depth"


def text(cases: Sequence[Case], *, title: str) -> str:
    return render(report_of([Version(cases)], title=title, costs=costs_of))


def costs_of(case: Case) -> Costs | None:
    """FLOPs and bytes of a call, and the attainable rate by the card's data sheet."""
    problem = problem_of(case)
    if problem is None or not problem.flops or not problem.bytes:
        return None
    sheet = from_data_sheet(case.gpu) if case.gpu else None
    ceiling = sheet.by_dtype.get(str(case.params.get("dtype"))) if sheet else None
    attainable = ceiling.attainable(problem.flops / problem.bytes) if ceiling else None
    return Costs(problem.flops, problem.bytes, attainable)
