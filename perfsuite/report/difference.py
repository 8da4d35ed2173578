"""Compares two records case by case: speeds by their intervals, shares of the roofline, limits, errors, verdicts."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from perfsuite.record.case import Case
from perfsuite.report import figures
from perfsuite.report.matching import Matched, matched, several_cards
from perfsuite.report.quantities import LEAST_ERROR, Quantity, kernel_part, quantities, worse, yardstick_part

LEAST_CHANGE = 0.03
"""Smaller changes of the ratio are not reported, whatever the intervals are. Each record is one process, and between
processes of one build a ratio moved by 2.8 % on an H200."""
_MUST_AGREE: dict[str, Callable[[Case], object]] = {
    "card": lambda case: case.gpu or f"CPU {case.cpu}",
    "harness": lambda case: case.harness,
    "cache": lambda case: case.cache,
    "mode of the card": lambda case: _mode(case.mode),
}
_VERSIONS = ("driver", "cuda", "torch", "cublas", "cudnn", "flash_attn", "python")
_LOOKED_AT = attrgetter("gpu", "cpu", "harness", "cache", *_VERSIONS)
_BETTER = {"WRONG": 0, "MISSED": 1, "UNDECIDED": 2, "MET": 3}
_WORSE_KIND = {"time": "slower", "cost": "costlier", "error": "less accurate"}
_BETTER_KIND = {"time": "faster", "cost": "cheaper", "error": "more accurate"}
REGRESSIONS = ("worse verdict", *_WORSE_KIND.values())
ORDER = (
    *(*REGRESSIONS, "yardstick", "unmatched", "gone", "unclear"),
    *("better verdict", *_BETTER_KIND.values(), "new", "same"),
)
"""Every kind of change, the worst first."""


@dataclass(frozen=True)
class Change:
    """A case of either record."""

    case: str
    before: Case | None
    after: Case | None
    kind: str
    """One of ORDER. "yardstick": the value or the verdict changed, since what the kernel is held against changed."""
    notes: tuple[str, ...] = field(default=())
    """The changes, in words."""

    @property
    def regression(self) -> bool:
        """True if the kernel got slower, costlier or less accurate, or its verdict worse."""
        return self.kind in REGRESSIONS

    @property
    def factor(self) -> float | None:
        """Speed after over speed before, below 1 for a slower case; None unless both have one."""
        one, two = (figures.speed(case) if case else None for case in (self.before, self.after))
        return two / one if one and two else None


def unlike(before: Sequence[Case], after: Sequence[Case]) -> list[str]:
    """Differences between the records that make their times incomparable, one clause each."""
    return environments_apart(before, after) + clocks_apart(matched(before, after))


def environment_of(case: Case) -> tuple[object, ...]:
    """All that `environments_apart` and `versions_changed` look at; a key of a dictionary."""
    return _LOOKED_AT(case), _mode(case.mode)


def environments_apart(before: Sequence[Case], after: Sequence[Case]) -> list[str]:
    """Cards, harnesses and states of timed cases that differ, one clause each."""
    found = []
    for what, read in _MUST_AGREE.items():
        one, two = (
            sorted({str(value) for case in cases if case.speed is not None and (value := read(case)) is not None})
            for cases in (before, after)
        )
        if one and two and one != two:
            found.append(f"{what} is {' and '.join(one)} in the first, {' and '.join(two)} in the second")
    return found


def clocks_apart(pairs: Iterable[Matched]) -> list[str]:
    """Cases that were timed by different clocks, one clause each."""
    found = []
    for first, second, _ in pairs:
        if first and second and first.speed and second.speed and first.clock != second.clock:
            found.append(f"{first.case} was timed by the {first.clock} clock, then by {second.clock}")
    return found


def versions_changed(before: Sequence[Case], after: Sequence[Case]) -> list[str]:
    """ "cublas 13.0.0 is now 13.1.0": versions that the rivals, and so the yardstick, may depend on."""
    found = []
    for name in _VERSIONS:
        one, two = (sorted({str(getattr(case, name)) for case in cases}) for cases in (before, after))
        if one != two:
            found.append(f"{name} {' and '.join(one)} is now {' and '.join(two)}")
    return found


def differences(
    before: Sequence[Case],
    after: Sequence[Case],
    *,
    least: float = LEAST_CHANGE,
    beside: Counter[str] | None = None,
    by_card: bool | None = None,
) -> list[Change]:
    """Every case of either record, regressions first, then by how much slower it got.

    beside: the number of pairs by name that were looked at elsewhere; a name that occurs several times needs its test.
    by_card: see `matched`.
    """
    if by_card is None:
        by_card = several_cards(before) or several_cards(after)
    pairs = matched(before, after, by_card=by_card)
    names = Counter((pair.after or pair.before).case for pair in pairs)  # type: ignore[union-attr]
    names.update(beside or {})
    changes = [_change(pair, names, least, by_card) for pair in pairs]
    return sorted(changes, key=lambda change: (ORDER.index(change.kind), change.factor or 1.0))


def got_worse(before: Case, after: Case, *, least: float = LEAST_CHANGE) -> list[str]:
    """A sentence for each limit that got costlier, and for the error if it grew; times are left out."""
    one, two = dict(quantities(before)), dict(quantities(after))
    moves = [(name, _move(one[name], two[name], least), one[name], two[name]) for name in one if name in two]
    return [_told(*move) for move in moves if move[1] in ("costlier", "less accurate")]


def lines(changes: Sequence[Change], *, same: int = 0) -> list[tuple[str, str]]:
    """(kind, line) of each case that is not the same, in the order given, and a last line with the counts.

    same: more cases that are the same.
    """
    found = []
    for change in changes:
        if change.kind == "same":
            continue
        factor = "" if change.factor is None else f" {100 * (change.factor - 1):+.1f} %"
        sides = " -> ".join("-" if case is None else _side(case) for case in (change.before, change.after))
        notes = "".join(f"; {note}" for note in change.notes)
        found.append((change.kind, f"{change.kind:<14}{factor:>9}  {change.case}: {sides}{notes}"))
    kinds = Counter(change.kind for change in changes)
    if same:
        kinds["same"] += same
    count = ", ".join(f"{number} {kind}" for kind, number in kinds.items())
    return [*found, ("", f"{len(changes) + same} cases: {count}")]


def _mode(mode: Mapping[str, bool | None] | None) -> str | None:
    """The modes that are on, in words; None if the record has no modes."""
    if not mode:
        return None
    return " and ".join(name for name, value in mode.items() if value) or "nothing special"


def _side(case: Case) -> str:
    return f"{case.verdict} {figures.ratio(figures.speed(case))} [{figures.interval(case)}]"


def _change(pair: Matched, names: Mapping[str, int], least: float, by_card: bool) -> Change:
    before, after, note = pair
    case = after or before
    assert case is not None
    name = case.case
    if names[name] > 1:  # several calls have this name
        which = case.label or (f"call {case.call}" if case.call else "")
        card = (case.gpu or "CPU") if by_card else ""
        name += f" ({', '.join(filter(None, (str(case.test), which, card)))})"
    if before is None or after is None:
        kind = "unmatched" if note else "new" if before is None else "gone"
        return Change(name, before, after, kind, (note,) if note else ())
    one, two = dict(quantities(before)), dict(quantities(after))
    moves = [(name, _move(one[name], two[name], least), one[name], two[name]) for name in one if name in two]
    kind = _kind(before, after, moves)
    explained = ("time",) if kind == "yardstick" else ()
    notes = [_told(*move) for move in moves if move[1] != "same" or move[2].kind in explained]
    if kind == "yardstick" and before.target != after.target:
        notes.append(f"the target {figures.target(before)} is now {figures.target(after)}")
    return Change(name, before, after, kind, tuple(filter(None, [note, *notes])))


_Move = tuple[str, str, Quantity, Quantity]
"""Name, kind of change, before, after."""


def _kind(before: Case, after: Case, moves: Sequence[_Move]) -> str:
    step = _BETTER[after.verdict] - _BETTER[before.verdict]
    # UNDECIDED on either side shows nothing about the code.
    if step < 0 and after.verdict == "MISSED" and before.verdict == "MET" and _by_yardstick(before, after, moves):
        return "yardstick"
    if step < 0 and after.verdict != "UNDECIDED" and before.verdict != "UNDECIDED":
        return "worse verdict"
    if before.verdict == "UNDECIDED" and after.verdict == "WRONG":
        return "worse verdict"
    kinds = [kind for _, kind, _, _ in moves]
    if (before.speed is None) != (after.speed is None):
        kinds.append("unclear")
    worst = min(kinds, key=ORDER.index, default="same")
    if step > 0 and worst not in REGRESSIONS:
        return "better verdict" if worst in ("same", "unclear") and before.speed is None else _better(worst)
    return worst


def _better(worst: str) -> str:
    return "better verdict" if worst == "same" else worst


def _move(before: Quantity, after: Quantity, least: float) -> str:
    """The kind of change of one quantity."""
    worsened = worse(before, after)
    limit = math.log(LEAST_ERROR) if before.kind == "error" else math.log1p(least)
    small = abs(worsened) < limit if before.kind == "error" else abs(math.expm1(-worsened)) < least
    if small or worsened == 0:
        return "same"
    if before.sampled:
        if not (before.low and before.high and after.low and after.high):
            return "unclear"
        if not (after.high < before.low or after.low > before.high):
            return "unclear"
    own, yardstick = kernel_part(before, after), yardstick_part(before, after)
    direction = math.copysign(1.0, worsened)
    if own is not None and yardstick is not None and own * direction < limit <= yardstick * direction:
        return "yardstick"
    return (_WORSE_KIND if worsened > 0 else _BETTER_KIND)[before.kind]


def _by_yardstick(before: Case, after: Case, moves: Sequence[_Move]) -> bool:
    """True if the yardstick explains the worse verdict: more than half of the change, or a target that rose."""
    for _, kind, one, two in moves:
        worsened = worse(one, two)
        if kind in REGRESSIONS or one.kind != "time" or worsened <= 0:
            continue
        own, yardstick = kernel_part(one, two), yardstick_part(one, two)
        if own is not None and yardstick is not None and own < worsened / 2 < yardstick:
            return True
    rose = before.target is not None and after.target is not None and after.target > before.target
    return rose and after.speed_low is not None and after.speed_low >= (before.target or 0.0)


def _told(name: str, kind: str, before: Quantity, after: Quantity) -> str:
    """The quantity on both sides; which part of it changed."""
    said = f"{name}: {before.says()} -> {after.says()}"
    own, yardstick = kernel_part(before, after), yardstick_part(before, after)
    if kind in ("same", "yardstick") and own is not None and yardstick is not None:
        said += f" (the kernel's own part {_percent(own)}, the yardstick {_percent(yardstick)})"
    return said


def _percent(rise: float) -> str:
    return f"{100.0 * math.expm1(rise):+.1f} %"
