"""Write a record as one HTML page that needs no other file.

The page shows verdicts, speeds with intervals, roofline, latency and memory by length,
accuracy, telemetry and environment.
"""

from __future__ import annotations

from collections.abc import Sequence

from perfsuite.analyze import roofline_plot
from perfsuite.analyze.roofline_ceilings import from_data_sheet
from perfsuite.analyze.roofline_points import points
from perfsuite.record.case import Case
from perfsuite.report.page import page

HELP = "one self-contained HTML page with tables and charts"


def text(cases: Sequence[Case], *, title: str) -> str:
    return page(cases, title=title, roofline=_roofline(cases, title))


def _roofline(cases: Sequence[Case], title: str) -> str | None:
    """A chart of the cases under their card's data sheet; None without a data sheet, or without a case to place."""
    gpu = cases[0].gpu
    ceilings = from_data_sheet(gpu) if gpu else None
    found = points(cases, ceilings)[0] if ceilings else []
    return roofline_plot.svg(found, ceilings, title=title) if found and ceilings else None
