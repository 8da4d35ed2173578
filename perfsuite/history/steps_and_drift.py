"""Finds regressions along the commits: single steps, and drift from an anchor.

A point is the cost of a case at one commit: its time over the rival's, so lower is better. A comparison with the level
of the recent commits finds a step. A comparison with the anchor, the best level ever confirmed or accepted, finds
drift, such as twenty steps of 0.5 %. Anchor and level follow from points and acceptances alone; nothing is stored.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from perfsuite.history.processes import t_quantile

RECENT = 8
"""Commits whose mean is the level."""
CONFIRM = 2
"""Commits in a row that must confirm an improvement before it becomes the anchor."""
PRIOR_DEGREES = 10.0
UNSURE_ALPHA = 0.05
"""Probability that a change beyond the upper end of its interval goes unnoticed."""


class Kind(StrEnum):
    """The kind of change that a commit made to a case."""

    FIRST = "first"
    SAME = "same"
    IMPROVED = "improved"
    STEP = "step"
    DRIFTED = "drifted"
    ACCEPTED = "accepted"


@dataclass(frozen=True)
class Point:
    """One commit: the logarithm of the case's cost, and its standard error between processes."""

    commit: str
    log_cost: float
    error: float


@dataclass(frozen=True)
class Rule:
    """Thresholds, as shares of the cost. `alpha` is the probability of a false alarm per commit and case."""

    step: float = 0.01
    drift: float = 0.02
    alpha: float = 0.001


@dataclass(frozen=True)
class Finding:
    """The result for one point."""

    commit: str
    kind: Kind
    change: float
    """Share by which the cost is above the recent level (step), or the anchor (drifted, improved, accepted)."""
    low: float
    """The least change at the rule's `alpha`."""
    high: float
    """The largest change that is not excluded at UNSURE_ALPHA, against the recent level."""
    sentence: str
    anchor: str
    """The commit that is the anchor from here on."""

    @property
    def bad(self) -> bool:
        """True for a regression that nobody accepted."""
        return self.kind in (Kind.STEP, Kind.DRIFTED)


def look_back(
    points: Sequence[Point], accepted: dict[str, str] | None = None, rule: Rule | None = None
) -> list[Finding]:
    """One finding for each point, oldest first. Raises ValueError if two points are of one commit.

    accepted: commit -> reason, for slow-downs that were declared as expected.
    """
    accepted, rule = accepted or {}, rule or Rule()
    if len({point.commit for point in points}) != len(points):
        raise ValueError("two points of one commit: pool them first")
    found: list[Finding] = []
    anchor: list[Point] = []
    level: list[Point] = []
    for index, point in enumerate(points):
        finding = _one(point, anchor, level, accepted.get(point.commit), rule)
        if finding.kind in (Kind.FIRST, Kind.ACCEPTED):
            anchor, level = [point], [point]
        elif finding.kind is Kind.IMPROVED:
            # One lucky commit must not become the anchor: CONFIRM commits in a row must be better.
            anchor = level = list(points[index + 1 - CONFIRM : index + 1])
        elif not finding.bad:  # after a regression the level stays: it alarms until it is fixed or accepted
            level = [*level, point][-RECENT:]
            if len(anchor) < RECENT and len(level) == len(anchor) + 1 and finding.anchor == anchor[0].commit:
                anchor = [*anchor, point]
        found.append(finding)
    return found


def unused(points: Sequence[Point], accepted: dict[str, str], findings: Sequence[Finding]) -> list[str]:
    """Commits with an acceptance although nothing got slower there."""
    used = {finding.commit for finding in findings if finding.kind is Kind.ACCEPTED}
    return [commit for commit in accepted if commit not in used and any(point.commit == commit for point in points)]


def _one(point: Point, anchor: list[Point], level: list[Point], reason: str | None, rule: Rule) -> Finding:
    if not anchor:
        return Finding(point.commit, Kind.FIRST, 0.0, 0.0, 0.0, "the first commit is the anchor", point.commit)
    here, start = point.commit[:10], anchor[0].commit
    step = math.log1p(rule.step)
    from_level, sure_level = _above([point], level, rule.alpha)
    high = math.expm1(2.0 * from_level - _above([point], level, UNSURE_ALPHA)[1])  # as far above as the other is below
    from_anchor, sure_anchor = _above([point], anchor, rule.alpha)
    drift, sure_drift = _above([*level, point][-RECENT // 2 :], anchor, rule.alpha)
    stepped = sure_level > step or (sure_anchor > step and from_level > 0)
    drifted = sure_drift > math.log1p(rule.drift)

    def found(kind: Kind, far: float, sure: float, said: str, anchored: str = start) -> Finding:
        return Finding(point.commit, kind, math.expm1(far), math.expm1(sure), high, said, anchored)

    if (stepped or drifted) and reason is not None:
        said = f"{here} costs {_percent(from_anchor)} more than the anchor, accepted: {reason}"
        return found(Kind.ACCEPTED, from_anchor, sure_anchor, said, point.commit)
    if drifted:
        said = f"the commits up to {here} cost {_percent(drift)} more than the anchor {start[:10]}"
        return found(Kind.DRIFTED, drift, sure_drift, said)
    if stepped:
        far, sure, than = from_level, sure_level, "the recent commits"
        if sure_level <= step:  # seen from the anchor only
            far, sure, than = from_anchor, sure_anchor, f"the anchor {start[:10]}"
        return found(Kind.STEP, far, sure, f"{here} costs {_percent(far)} more than {than} (at least {_percent(sure)})")
    last = [*level, point][-CONFIRM:]
    gain, sure_gain = _above(anchor, last, rule.alpha)
    all_below = max(one.log_cost for one in last) < min(one.log_cost for one in anchor)
    if len(last) == CONFIRM and sure_gain > step and all_below:
        said = f"the anchor moves to {last[0].commit[:10]}: it costs {_percent(gain)} less than {start[:10]}"
        change, least = -math.expm1(gain), -math.expm1(sure_gain)
        return Finding(point.commit, Kind.IMPROVED, change, least, high, said, last[0].commit)
    return found(Kind.SAME, from_level, sure_level, "no change")


def _above(some: Sequence[Point], others: Sequence[Point], alpha: float) -> tuple[float, float]:
    """(distance of the mean of `some` above that of `others`, its lower bound at `alpha`), in logarithms.

    The spread is that between the others, with the errors of the points as a prior.
    """
    expected = statistics.fmean(point.error**2 for point in (*some, *others))
    middle = statistics.fmean(point.log_cost for point in others)
    seen = sum((point.log_cost - middle) ** 2 for point in others)
    degrees = PRIOR_DEGREES + len(others) - 1
    variance = (PRIOR_DEGREES * expected + seen) / degrees
    far = statistics.fmean(point.log_cost for point in some) - middle
    half = t_quantile(alpha, degrees) * math.sqrt(variance * (1.0 / len(some) + 1.0 / len(others)))
    return far, far - half


def _percent(log_share: float) -> str:
    return f"{100.0 * math.expm1(log_share):.1f} %"
