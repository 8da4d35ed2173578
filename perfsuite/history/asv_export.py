"""Adds records to asv's result files, by asv's own classes. An export adds all samples or none."""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perfsuite.history import asv_files, series
from perfsuite.history.commits import HistoryError, commit_seconds, full_commit
from perfsuite.history.machines import ENVIRONMENT, HARNESS_KEY, machine_of, named, python_of, slug
from perfsuite.record.case import Case
from perfsuite.record.store import uncollected


class DirtyError(HistoryError):
    """The record is of a tree with changes that are not committed."""


class SeveralCardsError(HistoryError):
    """The record has cases of several cards."""

    def __init__(self, cards: list[str | None]) -> None:
        super().__init__("a record of one card is needed, this one has cases of several")
        self.cards = cards


@dataclass(frozen=True)
class Exported:
    """The result of an export."""

    file: Path
    commit: str
    machine: str
    added: int
    """Cases whose values were added."""
    known: int
    """Cases whose samples the file had already."""


def export(
    cases: Iterable[Case], results: Path, repository: Path, *, machine: str | None = None, allow_dirty: bool = False
) -> Exported:
    """Add a record to the result file of its commit, machine and Python version. The cases are taken one at a time.

    The same record again changes nothing. Raises HistoryError, with all files as they were, unless the record is of one
    clean commit of `repository` and the files there are valid; DirtyError if it is of a tree with changes.
    """
    with uncollected():
        return _export(cases, results, repository, machine, allow_dirty)


def _export(cases: Iterable[Case], results: Path, repository: Path, machine: str | None, allow_dirty: bool) -> Exported:
    origin = _Origin()
    values = series.values(origin.of(cases))
    commit, facts = origin.commit(repository, allow_dirty), origin.first[0]
    key = named(machine_of(facts), machine)
    listed = asv_files.read_declared(results.parent / asv_files.DECLARED_FILE)
    asv = asv_files.asv_itself()
    benchmarks = _benchmarks(results, series.joined(listed, series.declared_by(values)))
    python = python_of(facts)
    params, seconds = key | {"python": python}, commit_seconds(repository, commit)
    environment = ENVIRONMENT.format(python=python)
    there = results / key["machine"] / f"{commit[:8]}-{environment}.json"
    if there.exists() and asv_files.load_results(there).params.get(HARNESS_KEY) not in (None, key[HARNESS_KEY]):
        environment += f"-harness-{slug(key[HARNESS_KEY])}"  # another harness has measured the commit
    made = asv.results.Results(params, {}, commit, seconds * 1000, python, environment, {})
    _load_old(made, results)
    asv_files.check_machine(results, key)
    added, known = _add(made, benchmarks, values)
    _skip(made, benchmarks, listed)
    results.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".export-", dir=results) as folder:
        beside = Path(folder)
        made.save(str(beside))
        asv.util.write_json(str(beside / key["machine"] / "machine.json"), dict(key), asv.machine.Machine.api_version)
        asv.util.write_json(str(beside / "benchmarks.json"), dict(benchmarks), asv.benchmarks.Benchmarks.api_version)
        (results / key["machine"]).mkdir(exist_ok=True)
        for path in sorted(beside.rglob("*.json")):
            os.replace(path, results / path.relative_to(beside))
    return Exported(results / made._filename, commit, key["machine"], added, known)


@dataclass
class _Origin:
    """The commits and the machines of cases that went by."""

    first: list[Case] = field(default_factory=list)
    """A case of each commit and machine."""
    seen: set[object] = field(default_factory=set)
    dirty: bool = False

    def of(self, cases: Iterable[Case]) -> Iterator[Case]:
        """The same cases."""
        for case in cases:
            where = (case.commit, *machine_of(case).values())
            if where not in self.seen:
                self.seen.add(where)
                self.first.append(case)
            self.dirty |= bool(case.dirty)
            yield case

    def commit(self, repository: Path, allow_dirty: bool) -> str:
        """The one commit of the cases; HistoryError if the export may not have them."""
        commits = sorted({str(case.commit) for case in self.first})
        if self.dirty and not allow_dirty:
            raise DirtyError(
                f"the record was made of {commits[0][:10]} with changes that are not committed: no commit holds what "
                "was measured (--allow-dirty exports it all the same)"
            )
        if commits == ["None"]:
            raise HistoryError("a record of one commit is needed; this one was made outside a git repository")
        if len(commits) != 1:
            raise HistoryError(f"a record of one commit is needed, this one names {', '.join(commits)}")
        if len(self.first) > 1:
            raise SeveralCardsError(list(dict.fromkeys(case.gpu for case in self.first)))
        return full_commit(repository, commits[0])


def _benchmarks(results: Path, declared: series.Declared) -> dict[str, dict[str, Any]]:
    """Every series, stored or declared, as asv describes a benchmark."""
    found = asv_files.read_benchmarks(results)
    for group, measures in declared.items():
        for name, cases in measures.items():
            measure = series.BY_NAME.get(name)
            if measure is None:
                raise HistoryError(f"{name!r} is no measure; known are {', '.join(series.BY_NAME)}")
            title = series.benchmark_name(group, measure)
            known = found.get(title, {})
            values = [repr(case) for case in cases]
            before = known.get("params") or [[]]
            readable = series.readable_name(group, measure)
            same = known.get("version") == series.VERSION and known.get("pretty_name") == readable
            params = dict.fromkeys([*before[0], *values])
            if known and same and len(params) == len(before[0]):
                continue
            found[title] = {
                "code": f"# {measure.name} of the gated cases of test_{group}",
                "timeout": 60.0,
                **known,
                "name": title,
                "pretty_name": readable,
                "type": "track",
                "unit": measure.unit,
                "param_names": [series.PARAMETER],
                "params": [list(params)],
                "version": series.VERSION,
            }
    return found


def _load_old(made: Any, results: Path) -> None:
    path = results / made._filename
    if not path.exists():
        return
    old, new = ({"commit": one.commit_hash, **one.params} for one in (asv_files.load_results(path), made))
    names = sorted(name for name in {*old, *new} if old.get(name) != new.get(name))
    if names:
        apart = "; ".join(f"{name} {old.get(name)!r}, not {new.get(name)!r}" for name in names)
        raise HistoryError(f"{path} holds results of another machine or commit: {apart}")
    made.load_data(str(results))


def _add(made: Any, benchmarks: Mapping[str, Mapping[str, Any]], values: series.Values) -> tuple[int, int]:
    """Add the values; (cases added, cases that were there already)."""
    asv = asv_files.asv_itself()
    seen: dict[tuple[str, str], bool] = {}
    for group, measures in values.items():
        for name, of_cases in measures.items():
            title = series.benchmark_name(group, series.BY_NAME[name])
            benchmark = benchmarks[title]
            params = benchmark["params"][0]
            places = {name: place for place, name in enumerate(params)}
            new: list[series.Value] = [math.nan] * len(params)
            has = title in made.get_all_result_keys() and made.benchmark_version.get(title) == benchmark["version"]
            samples = made.get_result_samples(title, benchmark["params"]) if has else [None] * len(params)
            chosen = set()
            for case, value in of_cases.items():
                index = places[repr(case)]
                fresh = not (isinstance(value, list) and _holds(samples[index], value))
                seen[group, case] = seen.get((group, case), False) or (fresh and isinstance(value, list))
                # A skipped case does not replace an earlier value.
                if fresh and not (series.is_skipped(value) and has):
                    new[index] = value
                    chosen.add(index)
            if not chosen:
                continue
            rows = [asv_files.asv_value(value) for value in new]
            result = asv.runner.BenchmarkResult(*map(list, zip(*rows, strict=True)), 0, "", None)
            made.add_result(
                benchmark, result, record_samples=True, append_samples=True, selected_idx=chosen if has else None
            )
    added = sum(seen.values())
    return added, len(seen) - added


def _skip(made: Any, benchmarks: Mapping[str, Mapping[str, Any]], listed: series.Declared) -> None:
    """Enter declared series without any value as skipped. They are then empty on the page, not missing."""
    asv = asv_files.asv_itself()
    for group, measures in listed.items():
        for name in measures:
            benchmark = benchmarks[series.benchmark_name(group, series.BY_NAME[name])]
            if made.benchmark_version.get(benchmark["name"]) != benchmark["version"]:
                count = len(benchmark["params"][0])
                nothing = [[math.nan] * count, [None] * count, [None] * count, 0, "", None]
                made.add_result(benchmark, asv.runner.BenchmarkResult(*nothing), record_samples=True)


def _holds(old: list[float] | None, new: list[float]) -> bool:
    """True if the new samples are a contiguous part of the old ones."""
    old = old or []
    return any(old[start : start + len(new)] == new for start in range(len(old) - len(new) + 1))
