"""Reads a record of any size for a terminal: keeps its worst cases, and counts all."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from perfsuite.record.case import Case
from perfsuite.record.store import RecordedRun, RecordReader, uncollected
from perfsuite.report import figures


@dataclass(frozen=True)
class Worst:
    """The worst cases of a record."""

    first: Case
    """The record's first case."""
    run: RecordedRun
    """The record, with no case but the worst ones, worst first."""
    counts: Counter[str]
    """Verdict -> the number of cases of the record that have it."""


def read_worst(path: Path, most: int) -> Worst:
    """Check every line of a record, and keep `most` cases without samples. RecordError as from `read_run`.

    Cases that nobody sees are dropped at once, so the memory does not grow with the record.
    """
    reader = RecordReader(path)
    counts: Counter[str] = Counter()
    firsts: list[Case] = []

    def counted() -> Iterator[Case]:
        for _, _, case in reader.cases(samples=False):
            if not firsts:
                firsts.append(case)
            counts[case.verdict] += 1
            yield case

    with uncollected():
        worst = heapq.nsmallest(most, counted(), key=figures.badness)
    return Worst(firsts[0], RecordedRun(worst, reader.begin, reader.end), counts)
