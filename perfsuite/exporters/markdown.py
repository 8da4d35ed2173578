"""Write a record as markdown: counts, environment, a table with the worst case first, sentences."""

from __future__ import annotations

from collections.abc import Sequence

from perfsuite.record.case import Case
from perfsuite.report import markdown

HELP = "a table and sentences in markdown, worst case first"


def text(cases: Sequence[Case], *, title: str) -> str:
    return markdown.summary(cases, title=title, notes=[markdown.environment(cases[0])])
