"""Finds regressions along the commits: single steps, and drift from an anchor.

A point is the cost of a case at one commit: its time over the rival's, so lower is better. Each point is compared with
the level of the recent commits, which finds a step at once. It is also compared with the anchor, the best level that
was ever confirmed or accepted. That finds drift, such as twenty steps of 0.5 %, each too small to be seen alone. Anchor
and level follow from the points and the acceptances alone; nothing is stored.
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
    """Walk along the points, oldest first; return one finding for each.

    accepted: commit -> reason, where a slow-down was declared as expected.
    Raises ValueError where two points are of one commit.
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
            better = points[index + 1 - CONFIRM : index + 1]
            anchor, level = list(better), list(better)
        elif finding.kind in (Kind.STEP, Kind.DRIFTED):
            # The level stays: a regression alarms at every commit until it is fixed or accepted.
            pass
        else:
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
        return Finding(point.commit, Kind.FIRST, 0.0, 0.0, "the first commit is the anchor", point.commit)
    here = point.commit[:10]
    from_level, sure_level = _above([point], level, rule.alpha)
    from_anchor, sure_anchor = _above([point], anchor, rule.alpha)
    recent = [*level, point][-RECENT // 2 :]
    drift, sure_drift = _above(recent, anchor, rule.alpha)
    stepped = sure_level > math.log1p(rule.step) or (sure_anchor > math.log1p(rule.step) and from_level > 0)
    drifted = sure_drift > math.log1p(rule.drift)
    if stepped or drifted:
        far, sure = (from_level, sure_level) if stepped and not drifted else (drift, sure_drift)
        if reason is not None:
            said = f"{here} costs {_percent(from_anchor)} more than the anchor, accepted: {reason}"
            return Finding(
                point.commit, Kind.ACCEPTED, math.expm1(from_anchor), math.expm1(sure_anchor), said, point.commit
            )
        if stepped and not drifted:
            than = "the recent commits"
            if sure_level <= math.log1p(rule.step):  # seen from the anchor only
                far, sure, than = from_anchor, sure_anchor, f"the anchor {anchor[0].commit[:10]}"
            said = f"{here} costs {_percent(far)} more than {than} (at least {_percent(sure)})"
            return Finding(point.commit, Kind.STEP, math.expm1(far), math.expm1(sure), said, anchor[0].commit)
        said = f"the commits up to {here} cost {_percent(far)} more than the anchor {anchor[0].commit[:10]}"
        return Finding(point.commit, Kind.DRIFTED, math.expm1(far), math.expm1(sure), said, anchor[0].commit)
    last = [*level, point][-CONFIRM:]
    gain, sure_gain = _above(anchor, last, rule.alpha)
    if (
        len(level) >= CONFIRM - 1
        and len(last) == CONFIRM
        and sure_gain > math.log1p(rule.step)
        and _all_below(last, anchor)
    ):
        said = f"the anchor moves to {last[0].commit[:10]}: it costs {_percent(gain)} less than {anchor[0].commit[:10]}"
        return Finding(point.commit, Kind.IMPROVED, -math.expm1(gain), -math.expm1(sure_gain), said, last[0].commit)
    return Finding(
        point.commit, Kind.SAME, math.expm1(from_level), math.expm1(sure_level), "no change", anchor[0].commit
    )


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


def _all_below(some: Sequence[Point], others: Sequence[Point]) -> bool:
    return max(point.log_cost for point in some) < min(point.log_cost for point in others)


def _percent(log_share: float) -> str:
    return f"{100.0 * math.expm1(log_share):.1f} %"
