"""Write a record as markdown: a sentence, what needs attention with the worst case first, all cases folded."""

from __future__ import annotations

from collections.abc import Sequence

from perfsuite.record.case import Case
from perfsuite.report import markdown, step_summary

HELP = "what needs attention in markdown, worst case first, and all cases folded"


def text(cases: Sequence[Case], *, title: str) -> str:
    return step_summary.of_cases(cases, title=title, notes=[markdown.environment(cases[0])])
