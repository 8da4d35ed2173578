"""Carries stored series over to the names that they have today: asv's result files, and its lists of cases.

Values and samples stay as they are, and none is lost: a name that no source knows stays too.
"""

from __future__ import annotations

import json
import math
import os
import re
import tempfile
from ast import literal_eval
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfsuite.history import asv_files, series
from perfsuite.history.commits import HistoryError
from perfsuite.history.series_names import older_name_of
from perfsuite.record.case import Case

Names = dict[tuple[str, str], list[str]]
"""(Group, stored name) -> names that its series has now; several if tests shared a series."""


@dataclass
class Carried:
    """The result of carrying a history over."""

    moved: int = 0
    """Stored values that have a new name."""
    kept: int = 0
    """Stored values whose name no source knows; it stays."""


def names_of(sources: Iterable[Sequence[Case]]) -> Names:
    """The names of today for every stored name that a source knows.

    sources: the suite's cases of today first, then records. The first source that knows a stored name counts. A test
    of a later source that the first one lacks was renamed if the first one has its case under another test.
    """
    found: Names = {}
    for cases in sources:
        of_source: Names = {}
        plain: Names = {}
        for case, name in series.named(cases):
            group = series.group_of(case)
            now = found.get((group, older_name_of(case)), [name])
            for stored in (older_name_of(case), name):
                _add(of_source, (group, stored), now)
            _add(plain, (group, case.case), now)
        for names in (of_source, plain):  # before labels and numbers, the case's name was the series'
            for key, now in names.items():
                found.setdefault(key, now)
    return found


def _add(names: Names, key: tuple[str, str], new: Sequence[str]) -> None:
    kept = names.setdefault(key, [])
    kept += [name for name in new if name not in kept]


@dataclass(frozen=True)
class Plan:
    """The new names of stored series."""

    names: Names
    renamed: Mapping[str, str]
    """Old name of a test function -> its new name, for tests that no source knows by both."""

    def of(self, group: str, stored: str) -> list[str]:
        """The names that a stored series has now, by itself alone if nothing is known of it."""
        found = []
        for name in self.names.get((group, stored), [stored]):
            match = re.match(r"[\w:]+", name)
            test = match[0].removesuffix(":") if match else ""
            found.append(self.renamed.get(test, test) + name[len(test) :])
        return found

    def knows(self, group: str, stored: str) -> bool:
        """True if a source names the series, or its test was renamed."""
        return (group, stored) in self.names or self.of(group, stored) != [stored]


def carry(results: Path, plan: Plan) -> Carried:
    """Rename the series in all result files, in benchmarks.json and in the list of cases; all of it or nothing.

    Raises HistoryError for a file that cannot be read, with all files as they were.
    """
    asv, done = asv_files.asv_itself(), Carried()
    asv_files.check_results(results)
    with tempfile.TemporaryDirectory(prefix=".carry-", dir=results) as folder:
        beside = Path(folder)
        for path in sorted(results.glob("*/*.json")):
            if path.name != "machine.json" and not path.parent.name.startswith("."):
                value = _results(path, plan, done)
                asv.util.write_json(str(beside / path.relative_to(results)), value, compact=True)
        known = {title: _benchmark(title, one, plan) for title, one in asv_files.read_benchmarks(results).items()}
        asv.util.write_json(str(beside / "benchmarks.json"), known, asv.benchmarks.Benchmarks.api_version)
        for path in sorted(beside.rglob("*.json")):
            os.replace(path, results / path.relative_to(beside))
    _declared(results.parent / asv_files.DECLARED_FILE, plan)
    return done


def _results(path: Path, plan: Plan, done: Carried) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    columns = value["result_columns"]
    for title, row in value["results"].items():
        cells = dict(zip(columns, row, strict=False))
        stored = (cells.get("params") or [[]])[0] if title.split(".")[0] == series.MODULE else []
        if not stored:
            continue
        group, count = title.split(".")[1], len(stored)
        places = list(_places(stored, cells, plan, group))
        for index in range(count):
            if not _is_empty(cells, index):
                moved = plan.knows(group, literal_eval(stored[index]))
                done.moved, done.kept = done.moved + moved, done.kept + (not moved)
        for column, cell in cells.items():
            if column == "params":
                cells[column] = [[name for name, _ in places]]
            elif isinstance(cell, list) and len(cell) == count:
                cells[column] = [cell[index] for _, index in places]
        value["results"][title] = list(cells.values())
    return value


def _places(stored: Sequence[str], cells: Mapping[str, Any], plan: Plan, group: str) -> Iterator[tuple[str, int]]:
    """(new name as asv writes it, its place among the stored names).

    Of two stored series that now have one name, the one with values has it. If both have values, the second stays.
    """
    taken: dict[str, int] = {}
    for index, name in enumerate(stored):
        for new in map(repr, plan.of(group, literal_eval(name))):
            if new not in taken or _is_empty(cells, taken[new]):
                taken[new] = index
            elif not _is_empty(cells, index):
                taken.setdefault(name, index)
    yield from taken.items()


def _is_empty(cells: Mapping[str, Any], index: int) -> bool:
    """True if nothing was measured: asv writes NaN. A failed case has null, which is a value."""
    result = cells.get("result")
    return isinstance(result, list) and isinstance(result[index], float) and math.isnan(result[index])


def _benchmark(title: str, benchmark: Mapping[str, Any], plan: Plan) -> dict[str, Any]:
    module, _, rest = title.partition(".")
    if module != series.MODULE or not benchmark.get("params"):
        return dict(benchmark)
    group = rest.partition(".")[0]
    names = [literal_eval(name) for name in benchmark["params"][0]]
    return {**benchmark, "params": [[repr(name) for name in _renamed(names, plan, group)]]}


def _renamed(names: Iterable[str], plan: Plan, group: str) -> list[str]:
    return list(dict.fromkeys(new for name in names for new in plan.of(group, name)))


def _declared(path: Path, plan: Plan) -> None:
    """Rename the series in the list of cases, which may have problems beside them."""
    if not path.exists():
        return
    groups = asv_files.read_declared(path)
    document = json.loads(path.read_text(encoding="utf-8"))
    document["groups"] = {
        group: {measure: _renamed(names, plan, group) for measure, names in measures.items()}
        for group, measures in groups.items()
    }
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, delete=False) as file:
        file.write(json.dumps(document, indent=1) + "\n")
    os.replace(file.name, path)


def renamed_tests(given: Sequence[str]) -> dict[str, str]:
    """Old name -> new name, of texts such as "test_gemm=test_product". HistoryError for other texts."""
    found = {}
    for text in given:
        old, sign, new = text.partition("=")
        if not (sign and re.fullmatch(r"\w+(::\w+)*", old) and re.fullmatch(r"\w+(::\w+)*", new)):
            raise HistoryError(f"--renamed is {text!r}; it must be OLD=NEW, two names of test functions")
        found[old] = new
    return found
