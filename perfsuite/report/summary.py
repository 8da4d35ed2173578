"""Renders a row for each candidate and rival: gates that are met, the mean speed and the lowest."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from perfsuite.record.case import Case
from perfsuite.report import figures, markdown

_HEAD = ("what", "rival", "gates", "met", "speed, geometric mean", "lowest", "of")
_RULE = ("---", "---", "---:", "---:", "---:", "---:", "---")


def table(cases: Sequence[Case]) -> str:
    """One row a candidate and rival, in the record's order; cases without a measured ratio are left out.

    A roofline is a rival too: the speed is the share of it that was reached. The mean is geometric: a kernel twice as
    fast in one case and half as fast in another has a mean of 1.
    """
    groups: dict[tuple[str, str], list[tuple[float, Case]]] = {}
    for case in cases:
        if (speed := figures.speed(case)) is not None:
            groups.setdefault((figures.candidate(case), figures.rival(case)), []).append((speed, case))
    return markdown.grid([_HEAD, _RULE, *(_row(*key, members) for key, members in groups.items())])


def _row(what: str, rival: str, members: Sequence[tuple[float, Case]]) -> tuple[str, ...]:
    met = sum(case.verdict == "MET" for _, case in members)
    low, lowest = min(members, key=lambda member: member[0])
    return (
        what,
        rival,
        str(len(members)),
        str(met),
        figures.ratio(statistics.geometric_mean(speed for speed, _ in members)),
        figures.ratio(low),
        figures.label(lowest).removeprefix(f"{what} "),
    )
