"""The page's data: what its scripts read, as one JSON object.

runs     one object a version of the record, oldest first: commit, date, card, versions, counts of verdicts
now      index of the newest run; base: index of the run that it is compared with, or null
cases    one object a case of the newest run; "history" has columns with one entry for each run of the case,
         "elsewhere" has one object for each other card or harness
regressions    groups of slow-downs, newest first: the runs before and after, and the cases
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from perfsuite.record.case import Case
from perfsuite.report import figures
from perfsuite.report.page.attention import ORDER, Standing, standings
from perfsuite.report.page.regressions import Accepted, Regression, regressions
from perfsuite.report.page.timeline import Line, Version, elsewhere
from perfsuite.report.values import gated

DIGITS = 5
"""Significant digits of a number on the page."""
MOST_SAMPLES = 40
"""Samples of one side that a case shows, evenly spread over the run; the record keeps all."""
LETTERS = {"MET": "M", "MISSED": "X", "WRONG": "W", "UNDECIDED": "U"}
VERSIONS = ("driver", "cuda", "torch", "cublas", "cudnn", "flash_attn", "triton", "harness", "perfsuite", "python")


@dataclass(frozen=True)
class Costs:
    """The least work of a call, and the rate that the card could reach."""

    flops: float
    bytes: float
    sheet_flops: float | None = None
    """Attainable FLOPs a second by the card's data sheet."""


@dataclass(frozen=True)
class Links:
    """Where commits and tests can be read; without an address there are no links."""

    repository: str | None = None
    """Address of the repository's page, such as "https://github.com/owner/name"."""
    test_lines: Mapping[str, int] = field(default_factory=dict)
    """Test function ("path.py::name") -> line."""

    def commit(self, commit: str | None) -> str | None:
        """The address of a commit."""
        return f"{self.repository}/commit/{commit}" if self.repository and commit else None

    def test(self, test: str | None, commit: str | None) -> str | None:
        """The address of the line that defines a test."""
        if not (self.repository and test and commit):
            return None
        path, _, name = test.partition("::")
        line = self.test_lines.get(f"{path}::{name.partition('[')[0]}")
        return f"{self.repository}/blob/{commit}/{path}" + (f"#L{line}" if line else "")


@dataclass(frozen=True)
class Report:
    """All that the page shows."""

    title: str
    versions: Sequence[Version]
    """Oldest first; the last one is shown, the others are its history."""
    base: int | None
    """The version with which the last one is compared."""
    standings: Sequence[Standing]
    links: Links
    costs: Callable[[Case], Costs | None]
    accepted: Accepted

    @property
    def now(self) -> Version:
        """The version that is shown."""
        return self.versions[-1]


def report_of(
    versions: Sequence[Version],
    *,
    title: str,
    base: int | None = None,
    links: Links | None = None,
    costs: Callable[[Case], Costs | None] = lambda case: None,
    accepted: Accepted = lambda before, after: None,
) -> Report:
    """The report of the last version. Raises ValueError if there is no case, or no such base."""
    if not versions or not versions[-1].cases:
        raise ValueError("a page needs a record with at least one case")
    if base is not None and not 0 <= base < len(versions) - 1:
        raise ValueError(f"base is {base}; it must be the index of an earlier version, 0 to {len(versions) - 2}")
    if base is None:
        same = [index for index, version in enumerate(versions[:-1]) if version.setting == versions[-1].setting]
        base = same[-1] if same else None
    return Report(title, versions, base, standings(versions, base), links or Links(), costs, accepted)


def page_data(report: Report) -> dict[str, Any]:
    """The JSON object of the page's scripts."""
    slower = regressions([one.line for one in report.standings], len(report.versions) - 1, report.accepted)
    numbers = {id(one.line): index for index, one in enumerate(report.standings)}
    others = elsewhere(report.versions)
    return {
        "title": report.title,
        "runs": [_run(version, report.links) for version in report.versions],
        "now": len(report.versions) - 1,
        "base": report.base,
        "states": list(ORDER),
        "cases": [
            _case(index, one, report) | _elsewhere(others.get(id(one.line.last), []), report)
            for index, one in enumerate(report.standings)
        ],
        "regressions": [
            {"before": before, "after": after, "cases": [_slower(one, numbers[id(one.line)]) for one in group]}
            for (before, after), group in slower.items()
        ],
    }


def _slower(one: Regression, number: int) -> dict[str, Any]:
    found = {"id": number, "growth": short(one.step.growth), "state": one.state, "reason": one.reason}
    return {name: value for name, value in found.items() if value is not None}


def _elsewhere(found: Sequence[tuple[int, Case]], report: Report) -> dict[str, Any]:
    """The case on other cards, or by another harness."""
    rows = []
    for index, case in found:
        value = gated(case)
        row: dict[str, Any] = {
            "run": index,
            "value": value.value,
            "low": value.low,
            "high": value.high,
            "seconds": value.seconds,
        }
        row |= {"verdict": case.verdict, "sheetShare": _rates(case, value.seconds, report).get("sheetShare")}
        rows.append({name: short(part) for name, part in row.items() if part is not None})
    return {"elsewhere": rows} if rows else {}


def _run(version: Version, links: Links) -> dict[str, Any]:
    first = version.cases[0] if version.cases else None
    counts = {name: sum(case.verdict == name for case in version.cases) for name in figures.WORST_FIRST}
    found: dict[str, Any] = {"commit": version.commit, "date": version.date, "counts": counts}
    if first is not None:
        found |= {"card": version.setting[0] or f"CPU {first.cpu or 'unknown'}", "dirty": first.dirty}
        found |= {"link": links.commit(version.commit)}
        found |= {name: value for name in VERSIONS if (value := getattr(first, name, None)) is not None}
    return {name: value for name, value in found.items() if value is not None}


def _case(index: int, one: Standing, report: Report) -> dict[str, Any]:
    case, value = one.line.last, gated(one.line.last)
    found: dict[str, Any] = {
        "id": index,
        "test": case.test,
        "link": report.links.test(case.test, case.commit),
        "case": figures.label(case) + report.now.card_in_words(case),
        "op": figures.candidate(case),
        "family": case.family,
        "rival": figures.rival(case),
        "aspect": case.aspect,
        "kind": value.kind,
        "params": {name: part for name, part in case.params.items() if part is not None},
        "verdict": case.verdict,
        "state": one.state,
        "isNew": one.verdict_is_new or None,
        "since": one.since,
        "why": one.why or None,
        "reason": case.reason,
        "sentence": case.sentence,
        "value": value.value,
        "low": value.low,
        "high": value.high,
        "target": value.target,
        "toTarget": value.to_target,
        "change": one.growth,
        "seconds": value.seconds,
        "rivalSeconds": case.rival_seconds,
        "ceiling": value.ceiling,
        "error": case.candidate_error,
        "rivalError": case.rival_error,
        "errorLimit": case.error_limit,
        "bound": case.bound,
        "clock": case.clock,
        "cache": case.cache,
        "warnings": list(case.warnings) or None,
        "history": _history(one.line),
    }
    found |= _measured(case) | _telemetry(case) | _rates(case, value.seconds, report)
    if samples := _samples(case):
        found["samples"] = samples
    return {name: short(value) for name, value in found.items() if value is not None}


def _measured(case: Case) -> dict[str, Any]:
    measured = case.measured or {}
    return {"peakBytes": measured.get("peak_bytes"), "rivalPeakBytes": measured.get("rival_peak_bytes")} | {
        "launches": measured.get("launches")
    }


def _telemetry(case: Case) -> dict[str, Any]:
    read = case.telemetry
    if read is None or not read.sm_clock_hz:
        return {}
    return {
        "hertz": read.sm_clock_hz,
        "lowHertz": read.sm_clock_low_hz,
        "highHertz": read.sm_clock_high_hz,
        "watts": read.power_watts,
        "celsius": read.temperature_celsius,
        "throttled": ", ".join(read.reasons) or None,
        "rounds": len(case.samples.candidate_seconds) or None,
    }


def _rates(case: Case, seconds: float | None, report: Report) -> dict[str, Any]:
    """FLOPs and bytes of a call, and the rates that follow from its time."""
    costs = report.costs(case) if seconds else None
    if costs is None or not seconds:
        return {}
    attainable = costs.sheet_flops
    return {
        "flops": costs.flops,
        "bytes": costs.bytes,
        "flopRate": costs.flops / seconds,
        "byteRate": costs.bytes / seconds,
        "sheetFlops": attainable,
        "sheetShare": costs.flops / seconds / attainable if attainable else None,
    }


def _history(line: Line) -> dict[str, list[Any]]:
    """Columns with one entry a version; a column without any value is left out."""
    values = [gated(case) for case in line.cases]
    columns: dict[str, list[Any]] = {
        "run": list(line.versions),
        "value": [value.value for value in values],
        "low": [value.low for value in values],
        "high": [value.high for value in values],
        "target": [value.target for value in values],
        "seconds": [value.seconds for value in values],
        "rivalSeconds": [case.rival_seconds for case in line.cases],
        "ceiling": [value.ceiling for value in values],
    }
    kept = {name: short(column) for name, column in columns.items() if any(item is not None for item in column)}
    kept["verdicts"] = "".join(LETTERS[case.verdict] for case in line.cases)
    if steps := line.steps():
        kept["steps"] = [[step.before, step.after, short(step.growth)] for step in steps]
    return kept


def _samples(case: Case) -> dict[str, list[float]]:
    columns = {"own": case.samples.candidate_seconds, "rival": case.samples.rival_seconds}
    return {name: [short(value) for value in _thin(column)] for name, column in columns.items() if column}


def _thin(column: Sequence[float]) -> list[float]:
    count = min(len(column), MOST_SAMPLES)
    return [column[index * len(column) // count] for index in range(count)]


def short(value: Any) -> Any:
    """Numbers in few digits, also in lists; anything else as it is."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    return [short(item) for item in value] if isinstance(value, list) else value
