"""Compares two records case by case, by the interval on each side's ratio to the same rival."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from perfsuite.record.case import Case
from perfsuite.report import figures

LEAST_CHANGE = 0.03
"""Smaller changes of the ratio are not reported, whatever the intervals are. Each record is one process, and between
processes of one build a ratio moved by 2.8 % on an H200."""
_MUST_AGREE: dict[str, Callable[[Case], object]] = {
    "card": lambda case: case.gpu or f"CPU {case.cpu}",
    "harness": lambda case: case.harness,
    "cache": lambda case: case.cache,
    "mode of the card": lambda case: _mode(case.mode),
}
_BETTER = {"WRONG": 0, "MISSED": 1, "UNDECIDED": 2, "MET": 3}


@dataclass(frozen=True)
class Change:
    """A case of either record."""

    case: str
    before: Case | None
    after: Case | None
    kind: str
    """"slower", "faster", "same", "unclear", "worse verdict", "better verdict", "gone", "new"."""

    @property
    def regression(self) -> bool:
        """True if the case got slower or its verdict worse."""
        return self.kind in ("slower", "worse verdict")

    @property
    def factor(self) -> float | None:
        """Speed after over speed before, below 1 for a slower case; None unless both were timed."""
        one, two = (case.speed if case else None for case in (self.before, self.after))
        return two / one if one and two else None


def unlike(before: Sequence[Case], after: Sequence[Case]) -> list[str]:
    """Differences between the records that make their times incomparable, one clause each."""
    found = []
    for what, read in _MUST_AGREE.items():
        one, two = (
            sorted({str(value) for case in cases if case.speed is not None and (value := read(case)) is not None})
            for cases in (before, after)
        )
        if one and two and one != two:
            found.append(f"{what} is {' and '.join(one)} in the first, {' and '.join(two)} in the second")
    old, new = _by_key(before), _by_key(after)
    for key in (key for key in old if key in new):
        first, second = old[key], new[key]
        if first.speed and second.speed and first.clock != second.clock:
            found.append(f"{first.case} was timed by the {first.clock} clock, then by {second.clock}")
    return found


def differences(before: Sequence[Case], after: Sequence[Case], *, least: float = LEAST_CHANGE) -> list[Change]:
    """Every case of either record, regressions first, then by how much slower it got."""
    one, two = _by_key(before), _by_key(after)
    changes = [_change(key, one.get(key), two.get(key), least) for key in dict.fromkeys([*one, *two])]
    order = ("worse verdict", "slower", "gone", "unclear", "better verdict", "faster", "new", "same")
    return sorted(changes, key=lambda change: (order.index(change.kind), change.factor or 1.0))


def lines(changes: Sequence[Change]) -> list[tuple[str, str]]:
    """(kind, line) of each case that is not the same, in the order given, and a last line with the counts."""
    found = []
    for change in changes:
        if change.kind == "same":
            continue
        factor = "" if change.factor is None else f" {100 * (change.factor - 1):+.1f} %"
        sides = " -> ".join("-" if case is None else _side(case) for case in (change.before, change.after))
        found.append((change.kind, f"{change.kind:<14}{factor:>9}  {change.case}: {sides}"))
    kinds = [change.kind for change in changes]
    count = ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds))
    return [*found, ("", f"{len(changes)} cases: {count}")]


def _mode(mode: Mapping[str, bool | None] | None) -> str | None:
    """The modes that are on, in words; None if the record has no modes."""
    if not mode:
        return None
    return " and ".join(name for name, value in mode.items() if value) or "nothing special"


def _by_key(cases: Sequence[Case]) -> dict[tuple[str, ...], Case]:
    """Cases by name and cache mode; if several tests have the same case, by the test as well."""
    keys = [(case.case, str(case.cache)) for case in cases]
    counts = Counter(keys)
    return {key if counts[key] == 1 else (*key, str(case.test)): case for key, case in zip(keys, cases, strict=True)}


def _change(key: tuple[str, ...], before: Case | None, after: Case | None, least: float) -> Change:
    name = key[0] + (f" ({key[2]})" if len(key) > 2 else "")
    return Change(name, before, after, _kind(before, after, least))


def _kind(before: Case | None, after: Case | None, least: float) -> str:
    if before is None or after is None:
        return "new" if before is None else "gone"
    step = _BETTER[after.verdict] - _BETTER[before.verdict]
    # UNDECIDED on either side shows nothing about the code.
    if step < 0 and after.verdict != "UNDECIDED" and before.verdict != "UNDECIDED":
        return "worse verdict"
    if before.verdict == "UNDECIDED" and after.verdict == "WRONG":
        return "worse verdict"
    if before.speed is None or after.speed is None:
        if step > 0:
            return "better verdict"
        return "same" if step == 0 and before.speed == after.speed else "unclear"
    factor = after.speed / before.speed
    if abs(factor - 1.0) < least:
        return "better verdict" if step > 0 else "same"
    if not (before.speed_low and before.speed_high and after.speed_low and after.speed_high):
        return "unclear"
    if after.speed_high < before.speed_low:
        return "slower"
    return "faster" if after.speed_low > before.speed_high else "unclear"


def _side(case: Case) -> str:
    return f"{case.verdict} {figures.ratio(case.speed)} [{figures.interval(case)}]"
