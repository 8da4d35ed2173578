"""Reads the stored history of a case: asv's results of one machine, in git's order, with accepted slow-downs."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path

from perfsuite.clock.rounds import Side
from perfsuite.history import series
from perfsuite.history.commits import HistoryError, earlier_names, first_parents, trailers
from perfsuite.history.machines import machine_of
from perfsuite.history.processes import process_of, process_of_samples
from perfsuite.history.series_index import samples_of
from perfsuite.history.series_names import name_of, older_name_of
from perfsuite.history.steps_and_drift import Finding, Point, Rule, look_back, unused
from perfsuite.record.case import Case, Samples
from perfsuite.record.index_db import Index, open_index
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


def points_of(
    results: Path, commits: Sequence[str], case: Case, noise: Noise, *, repository: Path, index: Index | None = None
) -> list[Point]:
    """The stored results of a record's case at these commits, on the same machine and in their order.

    The series of a test file that git has renamed is that of its earlier names too. A commit without results under the
    series' name has those of its older name. Raises HistoryError if a result file of the machine cannot be read.
    """
    key = machine_of(case)
    measure = series.BY_NAME["time_ratio"]
    groups = dict.fromkeys([series.group_of(case), *(series.group_of_file(name) for name in _names(repository, case))])
    titles = [series.benchmark_name(group, measure) for group in groups]
    folder, names = results / key["machine"], [repr(name) for name in (name_of(case), older_name_of(case))]
    samples = samples_of(index or open_index(repository), folder, key, titles, names)
    place = {commit: number for number, commit in enumerate(commits)}
    ordered = sorted((commit for commit in samples if commit in place and samples[commit]), key=place.__getitem__)
    return [_point(commit, samples[commit], noise) for commit in ordered]


def _names(repository: Path, case: Case) -> list[str]:
    """The earlier names of a case's test file, by git's renames."""
    file = (case.test or "").partition("::")[0]
    return _earlier_names(repository, file, case.commit) if file else []


@lru_cache(maxsize=256)
def _earlier_names(repository: Path, file: str, commit: str | None) -> list[str]:
    try:
        return earlier_names(repository, file, commit or "HEAD")
    except HistoryError:
        return []  # no repository, or a file that git does not know


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
    before = points_of(results, commits[:-1], case, noise, repository=repository)
    here = Point(commits[-1], -process.log_speed, math.sqrt(process.variance(noise)))
    points = [*before, here]
    accepted = _placed(given, commits, points, case.case)
    findings = look_back(points, accepted, rule)
    idle = [f"{commit[:10]} accepts a slow-down that is not there: {accepted[commit]}"
            for commit in unused(points, accepted, findings)]  # fmt: skip
    return findings, idle


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
