"""Reads the stored history of a case: asv's results of one machine, in git's order, with accepted slow-downs."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Any

from perfsuite.clock.rounds import Side
from perfsuite.history import series
from perfsuite.history.asv_files import load_results
from perfsuite.history.commits import first_parents, trailers
from perfsuite.history.machines import machine_of
from perfsuite.history.processes import process_of, process_of_samples
from perfsuite.history.steps_and_drift import Finding, Point, Rule, look_back, unused
from perfsuite.record.case import Case, Samples
from perfsuite.verdict.noise import Noise

TRAILER = "Perf-Accept"
"""`Perf-Accept: <case glob> <reason>` in a commit's message; a glob with spaces stands in double quotes."""


@dataclass(frozen=True)
class Acceptance:
    """A trailer of a commit: the cases that may get slower there, and the reason."""

    commit: str
    glob: str
    reason: str


def acceptances(repository: Path, commits: Sequence[str]) -> list[Acceptance]:
    """The acceptances of these commits. A trailer without a reason does not count."""
    found = []
    for commit, lines in trailers(repository, list(commits), TRAILER).items():
        for line in lines:
            parsed = re.fullmatch(r'(?:"([^"]+)"|(\S+))\s+(.+)', line)
            if parsed is not None:
                found.append(Acceptance(commit, parsed[1] or parsed[2], parsed[3]))
    return found


def points_of(results: Path, commits: Sequence[str], case: Case, noise: Noise) -> list[Point]:
    """The stored results of a record's case at these commits, on the same machine and in their order.

    Raises HistoryError if a result file of the machine cannot be read.
    """
    key = machine_of(case)
    measure = series.BY_NAME["time_ratio"]
    title = series.benchmark_name(series.group_of(case), measure)
    place = {commit: index for index, commit in enumerate(commits)}
    samples: dict[str, list[float]] = {}
    for path in sorted((results / key["machine"]).glob("*.json")):
        if path.name == "machine.json":
            continue
        loaded = _loaded(path, path.stat().st_mtime_ns)
        if loaded.commit_hash not in place or loaded.benchmark_version.get(title) != series.VERSION:
            continue
        if {name: loaded.params.get(name) for name in key} != key:
            continue
        names = loaded.get_result_params(title)[0]
        if repr(case.case) in names:
            own = loaded.get_result_samples(title, [names])[names.index(repr(case.case))]
            samples.setdefault(loaded.commit_hash, []).extend(own or [])
    ordered = sorted((commit for commit in samples if samples[commit]), key=place.__getitem__)
    return [_point(commit, samples[commit], noise) for commit in ordered]


def findings_of(
    case: Case, results: Path, repository: Path, *, noise: Noise, rule: Rule
) -> tuple[list[Finding], list[str]]:
    """(findings along the stored history with the record's case as its newest point, sentences about acceptances).

    The case replaces stored results of its commit. There are no findings if it was not timed.
    """
    process = process_of(case)
    if process is None or case.commit is None:
        return [], []
    commits, given = _git_history(repository, case.commit)
    before = points_of(results, commits[:-1], case, noise)
    here = Point(commits[-1], -process.log_speed, math.sqrt(process.variance(noise)))
    points = [*before, here]
    accepted = _placed(given, commits, points, case.case)
    findings = look_back(points, accepted, rule)
    idle = [f"{commit[:10]} accepts a slow-down that is not there: {accepted[commit]}"
            for commit in unused(points, accepted, findings)]  # fmt: skip
    return findings, idle


@lru_cache(maxsize=1024)  # read once for all cases of a run
def _loaded(path: Path, changed_ns: int) -> Any:
    return load_results(path)


@lru_cache(maxsize=16)
def _git_history(repository: Path, tip: str) -> tuple[list[str], list[Acceptance]]:
    commits = first_parents(repository, tip)
    return commits, acceptances(repository, commits)


def _placed(given: Sequence[Acceptance], commits: Sequence[str], points: Sequence[Point], case: str) -> dict[str, str]:
    """Measured commit -> reason. An acceptance of an unmeasured commit counts for the next measured one."""
    place = {commit: index for index, commit in enumerate(commits)}
    measured = sorted(place[point.commit] for point in points)
    found: dict[str, str] = {}
    for one in given:
        at = next((index for index in measured if index >= place[one.commit]), None)
        if at is not None and fnmatchcase(case, one.glob):
            found[commits[at]] = one.reason
    return found


def _point(commit: str, ratios: Sequence[float], noise: Noise) -> Point:
    first: tuple[Side, ...] = tuple("candidate" for _ in ratios)
    process = process_of_samples(Samples(tuple(ratios), (1.0,) * len(ratios), first))
    return Point(commit, -process.log_speed, math.sqrt(process.variance(noise)))
