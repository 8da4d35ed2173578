"""The slow-downs of a record's history, grouped by the recorded commits between which they happened."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from perfsuite.record.case import Case
from perfsuite.report.difference import differences
from perfsuite.report.page.timeline import Line, Step

State = Literal["new", "accepted", "mended", "standing"]
Accepted = Callable[[Case, Case], str | None]
"""The reason for which a slow-down from one case to the other was accepted, or None."""


@dataclass(frozen=True)
class Regression:
    """One case that got slower."""

    line: Line
    step: Step
    state: State
    """ "new": in the newest version. "mended": the newest version is as fast as before. Else "standing"."""
    reason: str | None = None
    """The reason of an acceptance."""


def regressions(lines: Sequence[Line], newest: int, accepted: Accepted) -> dict[tuple[int, int], list[Regression]]:
    """The slow-downs by the versions before and after, the newest first; in a group, the largest first."""
    found: dict[tuple[int, int], list[Regression]] = defaultdict(list)
    for line in lines:
        for step in line.steps():
            if step.growth > 0:
                found[step.before, step.after].append(_regression(line, step, newest, accepted))
    ordered = sorted(found, key=lambda pair: (-pair[1], -pair[0]))
    return {pair: sorted(found[pair], key=lambda one: -one.step.growth) for pair in ordered}


def _regression(line: Line, step: Step, newest: int, accepted: Accepted) -> Regression:
    before, after = line.at(step.before), line.at(step.after)
    assert before is not None
    assert after is not None
    if (reason := accepted(before, after)) is not None:
        return Regression(line, step, "accepted", reason)
    if step.after == newest:
        return Regression(line, step, "new")
    since = differences([before], [line.last])
    mended = len(since) == 1 and since[0].kind not in ("slower", "worse verdict", "unclear")
    return Regression(line, step, "mended" if mended else "standing")
