"""Problems rebuilt from the parameters of recorded cases, for their FLOPs and bytes."""

from __future__ import annotations

from perfsuite.problems.base import Problem
from perfsuite.problems.listing import families
from perfsuite.record.case import Case


def problem_of(case: Case) -> Problem | None:
    """The problem that a case's parameters describe; None for a family without a formula."""
    kind = families().get(case.family)
    if kind is None:
        return None
    try:
        return kind(**case.params)
    except (TypeError, ValueError):
        return None
