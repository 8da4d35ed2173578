"""Names of series: by the test, the label and the order of the call, and as older versions of perfsuite named them."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator

from perfsuite.record import kernels
from perfsuite.record.case import Case
from perfsuite.settings import Settings


def name_of(case: Case, order: int | None = None) -> str:
    """The case's name among the series of its test file: "test_it[512] (label) #2 vs cublas".

    The key is the test, the label, and the order of the call among those of one label. Rivals, limits and conditions
    of one call have series of their own. A new kernel or a new problem continues the series of its test.

    order: the order of the call in its record, for a line that lacks it. A case without a test has its older name; a
    compiled kernel has its own.
    """
    function = (case.test or "").partition("::")[2]
    if not function or case.aspect == kernels.ASPECT:
        return older_name_of(case)
    number = case.order or order or 1
    parts = [function, f" ({case.label})" if case.label else "", f" #{number}" if number > 1 else ""]
    parts.append(f" vs {case.rival}" if case.rival else "")
    parts.append(f": {case.aspect}" if case.aspect else "")
    parts += [f", {value}" for value in _conditions(case)]
    return "".join(parts)


def older_name_of(case: Case) -> str:
    """The name of the case's series before the key was the test: candidate, problem and rival.

    A custom problem's name begins with the label.
    """
    label = f" ({case.label})" if case.label and case.family != "custom" else ""
    return f"{case.case}{label}" + (f" #{case.alike}" if (case.alike or 1) > 1 else "")


def ordered(cases: Iterable[Case]) -> Iterator[tuple[Case, int]]:
    """Each case with the order of its call among those of its test and label, from 1.

    A line that lacks it gets the place of its call. A line that lacks this too gets the place of what was called.
    """
    places: dict[Hashable, dict[Hashable, int]] = {}
    for case in cases:
        seen = places.setdefault((case.test, case.label), {})
        call: Hashable = case.call or (case.family, case.name, case.candidate)
        yield case, case.order or seen.setdefault(call, len(seen) + 1)


def _conditions(case: Case) -> list[str]:
    """The conditions of the measurement that differ from the usual ones, which other times follow from."""
    usual = (Settings.cache, Settings.distribution)
    given = (case.cache or usual[0], case.distribution or usual[1])
    return [value for value, default in zip(given, usual, strict=True) if value != default]
