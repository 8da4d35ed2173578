"""Pairs the cases of two records: by test, label, case, and the order of the calls."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import NamedTuple

from perfsuite.record.case import Case

Key = Callable[[Case], Hashable]


class Matched(NamedTuple):
    """A case of both records, or of one of them."""

    before: Case | None
    after: Case | None
    note: str = ""
    """The reason why the case could not be matched, or the name that changed; else empty."""


def _same(case: Case) -> Hashable:
    return case.test, case.label, case.case, case.cache


# Each later key gives up one name, for a case that has no partner by the keys before.
_RENAMED: dict[str, Key] = {
    "label": lambda case: (case.test, case.case, case.cache),
    "candidate": lambda case: (*(case.test, case.label, case.family, case.name, case.rival, case.aspect, case.cache),),
    "test": lambda case: (case.label, case.case, case.cache),
}


def several_cards(cases: Iterable[Case]) -> bool:
    """True for the cases of a record that joins card models. A case that was never timed needs no card."""
    return len({case.gpu for case in cases if case.gpu or case.speed is not None}) > 1


def matched(before: Iterable[Case], after: Iterable[Case], *, by_card: bool | None = None) -> list[Matched]:
    """Every case of both records once, in the order of the first record, then of the second.

    Several calls of one test that are alike are matched by their order, if both records have the same number of them.
    Otherwise the order tells nothing, and none of them is matched. by_card: match each card model by itself; by default
    if either record joins several.
    """
    before, after = list(before), list(after)
    if by_card is None:
        by_card = several_cards(before) or several_cards(after)
    old, new = (_groups(side, _same, by_card) for side in (before, after))
    found: list[Matched] = []
    for key in [key for key in old if key in new]:
        one, two = old.pop(key), new.pop(key)
        if len(one) == len(two):
            found += map(Matched, one, two)
        else:
            note = f"{len(one)} calls alike in the first record, {len(two)} in the second: give each a label"
            found += [Matched(case, None, note) for case in one]
            found += [Matched(None, case, note) for case in two]
    for name, key_of in _RENAMED.items():
        rest = [[case for cases in side.values() for case in cases] for side in (old, new)]
        old, new = (_groups(side, key_of, by_card) for side in rest)
        for key in [key for key in old if key in new]:
            if len(old[key]) == len(new[key]) and _of_one_test(old[key]) and _of_one_test(new[key]):
                for earlier, later in zip(old.pop(key), new.pop(key), strict=True):
                    note = f"{name} {getattr(earlier, name)!r} is now {getattr(later, name)!r}"
                    found.append(Matched(earlier, later, note))
    found += [Matched(case, None) for cases in old.values() for case in cases]
    return found + [Matched(None, case) for cases in new.values() for case in cases]


def _groups(cases: Iterable[Case], key_of: Key, by_card: bool) -> dict[Hashable, list[Case]]:
    """The cases by key, those of one key in the order of their calls. Older records lack the number of a call."""
    found: dict[Hashable, list[Case]] = defaultdict(list)
    for case in cases:
        found[(key_of(case), case.gpu) if by_card else key_of(case)].append(case)
    for group in found.values():
        group.sort(key=lambda case: case.call or 0)
    return dict(found)


def _of_one_test(cases: Sequence[Case]) -> bool:
    return len({case.test for case in cases}) == 1
