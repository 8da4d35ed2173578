"""Selects the cases that need attention, and says what happened to each and since when."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from perfsuite.report import figures
from perfsuite.report.difference import REGRESSIONS, Change, differences
from perfsuite.report.page.timeline import Line, Version, growth_of_time, lines
from perfsuite.report.quantities import kernel_part, quantities, worse, yardstick_part
from perfsuite.report.values import Gated, gated

State = Literal["wrong", "regressed", "newly missed", "long missed", "undecided", "met"]
GOT_WORSE = tuple(kind for kind in REGRESSIONS if kind != "worse verdict")
ORDER: tuple[State, ...] = ("wrong", "regressed", "newly missed", "long missed", "undecided", "met")


@dataclass(frozen=True)
class Standing:
    """The state of a case at the newest version, compared with the base."""

    line: Line
    state: State
    change: Change | None
    """The change that `difference` finds since the base; None if the base does not have the case."""
    since: int
    """The first version in a row with today's verdict; for a regression, the version in which it came."""
    growth: float | None
    """Share by which the candidate's time grew since the base."""

    @property
    def verdict_is_new(self) -> bool:
        """True if the base had another verdict."""
        before = self.change.before if self.change else None
        return before is not None and before.verdict != self.line.last.verdict

    @property
    def why(self) -> str:
        """The cause of a change since the base, in words: the kernel, or its yardstick; empty if nothing changed."""
        if self.change is None or self.change.kind == "same":
            return ""
        said = "; ".join(self.change.notes)
        if self.change.kind == "yardstick":
            return f"not the kernel, but its yardstick: {said}"
        return _blame(self.change) or said


def _blame(change: Change) -> str:
    """The shares of the kernel and of its yardstick in a slow-down; empty if the case was not slowed down."""
    if change.before is None or change.after is None or change.kind not in REGRESSIONS:
        return ""
    one, two = dict(quantities(change.before)), dict(quantities(change.after))
    for name in one:
        if name not in two or one[name].kind != "time" or worse(one[name], two[name]) <= 0:
            continue
        own, yardstick = kernel_part(one[name], two[name]), yardstick_part(one[name], two[name])
        if own is not None and yardstick is not None:
            held = "the ceiling" if change.after.aspect == "roofline" else figures.rival(change.after)
            shares = percent(math.expm1(own)), percent(math.expm1(yardstick))
            return f"the kernel accounts for {shares[0]}, {held} for {shares[1]}"
    return ""


def standings(versions: Sequence[Version], base: int | None) -> list[Standing]:
    """The standing of every case of the newest version. base: the version to compare with; None without one."""
    changes: dict[int, Change] = {}
    if base is not None:
        for change in differences(versions[base].cases, versions[-1].cases):
            if change.before is not None and change.after is not None:
                changes[id(change.after)] = change
    return [_standing(line, changes.get(id(line.last))) for line in lines(versions)]


def _standing(line: Line, change: Change | None) -> Standing:
    last, before = line.last, change.before if change else None
    since = line.same_verdict_since()
    state: State
    if last.verdict == "WRONG":
        state = "wrong"
    elif change is not None and change.kind in GOT_WORSE:
        state = "regressed"
        since = next((step.after for step in reversed(line.steps()) if step.growth > 0), line.versions[-1])
    elif last.verdict == "MISSED":
        state = "newly missed" if before is not None and before.verdict != "MISSED" else "long missed"
    else:
        state = "undecided" if last.verdict == "UNDECIDED" else "met"
    return Standing(line, state, change, since, growth_of_time(before, last) if before is not None else None)


def by_urgency(standings: Sequence[Standing]) -> list[Standing]:
    """Most urgent first; of one state, the case furthest below its target, or with the largest slow-down, first."""

    def key(one: Standing) -> tuple[int, float]:
        if one.state == "regressed":
            return ORDER.index(one.state), -(one.growth or 0.0)
        to_target = gated(one.line.last).to_target
        return ORDER.index(one.state), 0.0 if to_target is None else to_target

    return sorted(standings, key=key)


def percent(share: float, *, sign: bool = True) -> str:
    """ "+1.4 %"."""
    return f"{100 * share:{'+' if sign else ''}.1f} %"


def value_text(value: Gated) -> str:
    """ "2.003 x" for a speed, "95.1 %" for a share, a plain number otherwise."""
    if value.value is None:
        return "-"
    if value.kind == "share":
        return f"{100 * value.value:.1f} %"
    return f"{figures.ratio(value.value)} x" if value.kind == "speed" else f"{value.value:.4g}"


def target_text(value: Gated) -> str:
    """The target in the value's form."""
    if value.target is None:
        return "-"
    return f"{100 * value.target:.1f} %" if value.kind == "share" else f"{value.target:.3g} x"
