"""Follows each case through the versions of a record, and finds the steps of its time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from perfsuite.record.case import Case
from perfsuite.report.difference import differences
from perfsuite.report.matching import matched, several_cards
from perfsuite.report.values import gated
from perfsuite.settings import timing_version


@dataclass(frozen=True)
class Version:
    """A record as one run left it."""

    cases: Sequence[Case]
    date: str | None = None
    """The day on which the record was stored, as in ISO 8601."""

    @property
    def commit(self) -> str | None:
        """The commit that was measured."""
        return self.cases[0].commit if self.cases else None

    @property
    def setting(self) -> tuple[str | None, str | None]:
        """The cards and the harness, which must agree before values of two versions may stand in one history."""
        cards = sorted({case.gpu for case in self.cases if case.gpu})
        return (" and ".join(cards) or None, timing_version(self.cases[0].harness)) if self.cases else (None, None)

    @cached_property
    def several_cards(self) -> bool:
        """True if the record joins card models."""
        return several_cards(self.cases)

    def card_in_words(self, case: Case) -> str:
        """ " on NVIDIA H200", for the names of cases; empty in a record of one card model."""
        return f" on {case.gpu or 'CPU'}" if self.several_cards else ""


@dataclass(frozen=True)
class Step:
    """A change of a case's time between two neighbouring versions in which it was measured."""

    before: int
    """Index of the version before."""
    after: int
    growth: float
    """Share by which the time grew; below 0 if the case got faster."""


@dataclass
class Line:
    """One case through the versions. All lists have one entry for each version that has the case, oldest first."""

    versions: list[int]
    cases: list[Case]

    @property
    def last(self) -> Case:
        """The case in the newest version that has it."""
        return self.cases[-1]

    def at(self, version: int) -> Case | None:
        """The case in that version."""
        return self.cases[self.versions.index(version)] if version in self.versions else None

    def before(self, version: int) -> Case | None:
        """The case in the newest version before that one."""
        found = [case for index, case in zip(self.versions, self.cases, strict=True) if index < version]
        return found[-1] if found else None

    def same_verdict_since(self) -> int:
        """The first version of those in a row, up to the last, in which the verdict was the same."""
        first = self.versions[-1]
        for version, case in zip(reversed(self.versions), reversed(self.cases), strict=True):
            if case.verdict != self.last.verdict:
                break
            first = version
        return first

    def steps(self) -> list[Step]:
        """The changes of the kernel's speed that `difference` calls sure, oldest first."""
        found = []
        pairs = zip(self.versions, self.versions[1:], self.cases, self.cases[1:], strict=False)
        for before, after, one, two in pairs:
            changes = differences([one], [two])
            growth = growth_of_time(one, two)
            if len(changes) == 1 and growth is not None and {changes[0].kind} & {"slower", "faster"}:
                found.append(Step(before, after, growth))
        return found


def growth_of_time(before: Case, after: Case) -> float | None:
    """Share by which the candidate's time grew. Against a rival both are measured as multiples of the rival's time."""
    one, two = gated(before), gated(after)
    if one.kind == "speed" and one.value and two.value:
        return one.value / two.value - 1.0
    if one.kind == "share" and one.seconds and two.seconds:
        return two.seconds / one.seconds - 1.0
    return None


def lines(versions: Sequence[Version]) -> list[Line]:
    """The line of every case of the newest version, in its order.

    Versions of another card or harness than the newest are left out: their values mean something else.
    """
    last = len(versions) - 1
    found = {id(case): Line([last], [case]) for case in versions[last].cases}
    oldest = {id(line.cases[0]): line for line in found.values()}
    for index in range(last - 1, -1, -1):
        version = versions[index]
        if version.setting != versions[last].setting:
            continue
        for before, after, _ in matched(version.cases, [line.cases[0] for line in found.values()]):
            if before is None or after is None:
                continue
            line = oldest.pop(id(after))
            line.versions.insert(0, index)
            line.cases.insert(0, before)
            oldest[id(before)] = line
    return list(found.values())


def elsewhere(versions: Sequence[Version]) -> dict[int, list[tuple[int, Case]]]:
    """Identity of a case of the newest version -> (version, the case there), for each other card or harness.

    Of every other setting, only its newest version counts.
    """
    found: dict[int, list[tuple[int, Case]]] = {}
    seen = {versions[-1].setting}
    for index in range(len(versions) - 2, -1, -1):
        version = versions[index]
        if version.setting in seen:
            continue
        seen.add(version.setting)
        for before, after, _ in matched(version.cases, versions[-1].cases):
            if before is not None and after is not None:
                found.setdefault(id(after), []).append((index, before))
    return found
