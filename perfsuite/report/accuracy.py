"""The errors of a record in a few lines: how far from float64 each candidate is, by how far its rival is."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from perfsuite.report import figures

_HEAD = ("what", "rival", "inputs", "cases", "error, of the rival's: geometric mean", "highest", "of")
_RULE = ("---", "---", "---", "---:", "---:", "---:", "---")


def table(cases: Sequence[Mapping[str, Any]]) -> str:
    """One row a candidate, rival and distribution of inputs, in the record's order.

    Left out are cases that have not both errors, and those where the rival makes none.
    """
    groups: dict[tuple[str, str, str], list[tuple[float, Mapping[str, Any]]]] = {}
    for case in cases:
        own, theirs = case.get("candidate_error"), case.get("rival_error")
        if own is not None and theirs:
            key = (figures.candidate(case), figures.rival(case), str(case.get("distribution")))
            groups.setdefault(key, []).append((own / theirs, case))
    rows = [_row(key, members) for key, members in groups.items()]
    return "\n".join("| " + " | ".join(row) + " |" for row in [_HEAD, _RULE, *rows])


def _row(key: tuple[str, str, str], members: Sequence[tuple[float, Mapping[str, Any]]]) -> tuple[str, ...]:
    what, rival, inputs = key
    most, worst = max(members, key=lambda member: member[0])
    mean = statistics.geometric_mean(share for share, _ in members) if all(share for share, _ in members) else 0.0
    label = figures.label(worst).removeprefix(f"{what} ").removesuffix(f" {inputs}")
    return (what, rival, inputs, str(len(members)), figures.ratio(mean), figures.ratio(most), label)
