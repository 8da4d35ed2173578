"""The parts of a suite that runs on several machines: the same partition on each, from the tests and recorded times."""

from __future__ import annotations

import hashlib
import json
import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pytest

from perfsuite.pytest_plugin import concerns
from perfsuite.pytest_plugin.marks import is_gated, planned_cases
from perfsuite.pytest_plugin.options import bad_option
from perfsuite.record.fingerprint import commit_of
from perfsuite.record.run_lines import Part
from perfsuite.settings import HARNESS

if TYPE_CHECKING:
    from pathlib import Path

    from perfsuite.pytest_plugin.run import Run

ORDINARY = 0.01
"""The work of a test without a gate, as a share of a gate's: it only has to be spread."""


def take_part(run: Run, items: list[pytest.Item]) -> None:
    """Leave the tests of this run's part in `items`, in their order, and note the facts of the whole suite."""
    if run.options.shard is None or run.fresh:
        return
    number, count = run.options.shard
    seconds = {} if run.options.shard_times is None else recorded_seconds(run.options.shard_times)
    names = [item.nodeid for item in items]
    parts = partition(names, [_work(item, seconds) for item in items], count)
    planned = planned_cases(items)
    commit, dirty = commit_of(run.config.rootpath, run.variables)  # an empty part has no case that tells them
    run.part = Part(
        number=number,
        count=count,
        partition=key_of(names, parts, count),
        tests=len(items),
        divided_by=run.options.settings(cases=planned).cases,
        commit=commit,
        dirty=dirty,
        harness=HARNESS,
        gpu=run.card.name if run.options.gpu and not run.devices.missing else None,
    )
    run.planned = planned
    others = [item for item, part in zip(items, parts, strict=True) if part != number]
    items[:] = [item for item, part in zip(items, parts, strict=True) if part == number]
    if others:
        run.config.hook.pytest_deselected(items=others)


def partition(names: Sequence[str], work: Sequence[float], count: int) -> list[int]:
    """The part, from 1 to `count`, of each test. It depends on the names and their work, not on their order.

    The longest test comes first, each goes to the part that has the least work (R. Graham, Bounds on multiprocessing
    timing anomalies, 1969). Of parts with equal work the one with fewer tests gets it, then the first.
    """
    loads = [(0.0, 0, number) for number in range(1, count + 1)]
    parts = [0] * len(names)
    for place in sorted(range(len(names)), key=lambda place: (-work[place], names[place])):
        load, tests, number = min(loads)
        parts[place] = number
        loads[number - 1] = (load + work[place], tests + 1, number)
    return parts


def key_of(names: Sequence[str], parts: Sequence[int], count: int) -> str:
    """A hash of a partition; machines that divide the same suite in the same way have the same one."""
    pairs = sorted(zip(names, parts, strict=True))
    return hashlib.sha256(json.dumps([count, pairs]).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def recorded_seconds(path: Path) -> Mapping[str, float]:
    """Test -> seconds of all its cases in a record, a mean over the cards in it. UsageError for another file."""
    from perfsuite.record.schema import RecordError
    from perfsuite.record.store import read_run

    try:
        cases = read_run(path, samples=False).cases
    except RecordError as error:
        raise bad_option(f"--perf-shard-times is no record with cases: {error}") from None
    found: dict[str, dict[str | None, float]] = {}
    for case in cases:
        if case.test is not None and case.wall_seconds:
            of_test = found.setdefault(case.test, {})
            of_test[case.gpu] = of_test.get(case.gpu, 0.0) + case.wall_seconds
    return {test: statistics.fmean(of_test.values()) for test, of_test in found.items()}


def _work(item: pytest.Item, seconds: Mapping[str, float]) -> float:
    """Recorded seconds; of a test without them, the median test's. Without any record: the number of gates."""
    if not (concerns(item) and is_gated(item)):
        return ORDINARY
    if seconds:
        return seconds.get(item.nodeid) or statistics.median(seconds.values())
    return float(max(1, planned_cases([item])))
