"""A record's cases as asv's series: their names, units, parameters and versions.

asv reads every number as lower-is-better, so every series is a cost: seconds, bytes, counts, and ratios of candidate
to rival. A case with a wrong answer has failed (None). A case that was not measured is skipped (NaN).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import PurePosixPath

from perfsuite.history.series_names import name_of, ordered
from perfsuite.record import kernels
from perfsuite.record.case import Case

Value = list[float] | float | None
"""Samples, or a single number; NaN for skipped, None for failed."""
Values = dict[str, dict[str, dict[str, Value]]]
"""Group -> measure -> case -> value."""
Declared = dict[str, dict[str, list[str]]]
"""Group -> measure -> cases."""

MODULE = "gates"
"""The module under benchmarks_asv/benchmarks that declares the series."""
VERSION = "3"
"""Version of every series, that is, of this mapping. asv drops results of other versions. Results of another harness
stay, on separate lines (`perfsuite.history.machines`)."""
PARAMETER = "case"
OLD_CEILINGS = ("1", "2", "3", "4")
"""Versions of the harness whose rooflines had other ceilings."""
SAMPLES_KEPT = 32
"""Samples of one run and case that go to asv, evenly spread over the run; the record keeps all."""
_DIGITS = 7


@dataclass(frozen=True)
class Measure:
    """One series a case."""

    name: str
    unit: str
    applies: Callable[[Case], bool]
    read: Callable[[Case], Value]
    title: str
    """The words for it on asv's page."""

    @property
    def method(self) -> str:
        """The name of asv's benchmark method."""
        return f"track_{self.name}"


def _timed(case: Case) -> bool:
    return case.target is not None


def _checked(case: Case) -> bool:
    return case.rival is not None and case.aspect is None


def _ratios(case: Case) -> Value:
    pairs = zip(case.samples.candidate_seconds, case.samples.rival_seconds, strict=True)
    return thin([mine / rivals for mine, rivals in pairs])


def _error_ratio(case: Case) -> Value:
    if case.candidate_error is None or not case.rival_error:
        return math.nan  # a rival with an error of 0 gives no scale
    return _short(case.candidate_error / case.rival_error)


def _attainable_ratio(case: Case) -> Value:
    """1 over the share of the roofline; NaN if it was not measured."""
    share = (case.measured or {}).get("share", math.nan)
    return _short(1.0 / share) if share > 0 else math.nan


def _limited(*aspects: str) -> Callable[[Case], bool]:
    return lambda case: case.aspect in aspects


def _roofline(*, own_size: bool) -> Callable[[Case], bool]:
    return lambda case: case.aspect == "roofline" and (case.harness not in OLD_CEILINGS) == own_size


def _timed_or_limited(*aspects: str) -> Callable[[Case], bool]:
    return lambda case: _timed(case) or case.aspect in aspects


def _measured(name: str) -> Callable[[Case], Value]:
    return lambda case: (case.measured or {}).get(name, math.nan)


KERNEL_UNITS = {"registers": "registers", "spilled_bytes": "bytes"}
"""Series of each kernel, in records of kernels: a thread's registers, and its bytes of local memory."""
MEASURES = (
    Measure("candidate_seconds", "seconds", _timed, lambda case: thin(case.samples.candidate_seconds), "time"),
    Measure("rival_seconds", "seconds", _timed, lambda case: thin(case.samples.rival_seconds), "rival's time"),
    Measure("time_ratio", "candidate/rival", _timed, _ratios, "time over the rival's"),
    Measure("error_ratio", "candidate/rival", _checked, _error_ratio, "error over the rival's"),
    # Ceilings before harness 5 were of other reads. Their series end, and those of times go on.
    Measure(
        "attainable_ratio",
        "time/attainable time",
        _roofline(own_size=False),
        _attainable_ratio,
        "time over an old roof",
    ),
    Measure(
        "roofline_ratio",
        "time/attainable time",
        _roofline(own_size=True),
        _attainable_ratio,
        "time over the attainable",
    ),
    Measure("peak_bytes", "bytes", _timed_or_limited("memory", "growth"), _measured("peak_bytes"), "peak memory"),
    Measure("launches", "launches", _timed_or_limited("launches"), _measured("launches"), "launches"),
    Measure("synchronises", "waits", _limited("no_sync"), _measured("synchronises"), "waits for the device"),
    *(
        Measure(name, unit, _limited(kernels.ASPECT), _measured(name), name.replace("_", " "))
        for name, unit in KERNEL_UNITS.items()
    ),
)
BY_NAME = {measure.name: measure for measure in MEASURES}


def group_of(case: Case) -> str:
    """The class of a case's benchmark in asv: the name of its test file without "test_"."""
    return group_of_file((case.test or "").split("::")[0])


@lru_cache(maxsize=1024)
def group_of_file(file: str) -> str:
    """The class of the benchmarks of a test file."""
    stem = PurePosixPath(file).stem.removeprefix("test_")
    name = "".join(letter if letter.isalnum() else "_" for letter in stem)
    return name if name and not name[0].isdigit() else f"cases{'_' if name else ''}{name}"


def benchmark_name(group: str, measure: Measure) -> str:
    """asv's name of a series."""
    return f"{MODULE}.{group}.{measure.method}"


def readable_name(group: str, measure: Measure) -> str:
    """The name of a series on asv's page: "gemm shapes: time"."""
    return f"{group.replace('_', ' ')}: {measure.title}"


def declared(cases: Iterable[Case]) -> Declared:
    """The series of these cases, measured or not."""
    return declared_by(values(cases))


def declared_by(found: Values) -> Declared:
    """The series of these values."""
    return {
        group: {measure: list(of_cases) for measure, of_cases in measures.items()} for group, measures in found.items()
    }


def of_kernels(series: Declared) -> Declared:
    """The series of compiled kernels."""
    found: Declared = {}
    for group, measures in series.items():
        if kept := {measure: list(names) for measure, names in measures.items() if measure in KERNEL_UNITS}:
            found[group] = kept
    return found


def values(cases: Iterable[Case]) -> Values:
    """The values of a record in each series. Samples of one call in several processes are pooled."""
    found: Values = {}
    for case, name in named(cases):
        for measure in MEASURES:
            if not measure.applies(case):
                continue
            series = found.setdefault(group_of(case), {}).setdefault(measure.name, {})
            new = None if case.verdict == "WRONG" else measure.read(case)
            series[name] = _pooled(series.get(name, math.nan), new)
    return found


def named(cases: Iterable[Case]) -> Iterator[tuple[Case, str]]:
    """The cases of a record with the names of their series."""
    for case, order in ordered(cases):
        yield from ((one, name_of(one, order)) for one in _single(case))


def joined(*parts: Declared) -> Declared:
    """All series of all parts, in the order of the parts."""
    found: dict[str, dict[str, dict[str, None]]] = {}
    for part in parts:
        for group, series in part.items():
            for measure, names in series.items():
                found.setdefault(group, {}).setdefault(measure, {}).update(dict.fromkeys(names))
    return {group: {measure: list(names) for measure, names in series.items()} for group, series in found.items()}


def _single(case: Case) -> Iterator[Case]:
    """The case; that of all kernels of a module is replaced by one for each kernel."""
    if case.aspect != kernels.ASPECT:
        yield case
        return
    for kernel, measured in kernels.by_kernel(case.measured or {}):
        yield case.changed(case=kernel, measured=measured)


def thin(samples: Sequence[float]) -> Value:
    """At most SAMPLES_KEPT of them, evenly spread, in few digits; NaN without samples."""
    if not samples:
        return math.nan
    count = min(len(samples), SAMPLES_KEPT)
    return [_short(samples[index * len(samples) // count]) for index in range(count)]


def is_skipped(value: Value) -> bool:
    """True if nothing was measured."""
    return isinstance(value, float) and math.isnan(value)


def _pooled(old: Value, new: Value) -> Value:
    if old is None or new is None:
        return None
    if is_skipped(old):
        return new
    return old + new if isinstance(old, list) and isinstance(new, list) else old


def _short(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")
