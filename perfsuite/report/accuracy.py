"""Renders a row for each candidate, rival and distribution: the candidate's error as a share of the rival's."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from perfsuite.record.case import Case
from perfsuite.report import figures, markdown

_HEAD = ("what", "rival", "inputs", "cases", "error, of the rival's: geometric mean", "highest", "of")
_RULE = ("---", "---", "---", "---:", "---:", "---:", "---")


def table(cases: Sequence[Case]) -> str:
    """One row a candidate, rival and distribution of inputs, in the record's order.

    Cases without both errors are left out, as are those whose rival has an error of 0.
    """
    groups: dict[tuple[str, str, str], list[tuple[float, Case]]] = {}
    for case in cases:
        own, theirs = case.candidate_error, case.rival_error
        if own is not None and theirs:
            key = (figures.candidate(case), figures.rival(case), str(case.distribution))
            groups.setdefault(key, []).append((own / theirs, case))
    return markdown.grid([_HEAD, _RULE, *(_row(*key, members) for key, members in groups.items())])


def _row(what: str, rival: str, inputs: str, members: Sequence[tuple[float, Case]]) -> tuple[str, ...]:
    most, worst = max(members, key=lambda member: member[0])
    mean = statistics.geometric_mean(share for share, _ in members) if all(share for share, _ in members) else 0.0
    label = figures.label(worst).removeprefix(f"{what} ").removesuffix(f" {inputs}")
    return (what, rival, inputs, str(len(members)), figures.ratio(mean), figures.ratio(most), label)
