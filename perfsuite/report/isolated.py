"""Compares an isolated run with an in-process run of the same cases: speeds side by side, and verdicts that differ."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from perfsuite.outcome import UserError
from perfsuite.record.case import Case
from perfsuite.record.store import read_record
from perfsuite.report import figures
from perfsuite.report.markdown import environment, escaped, grid
from perfsuite.report.matching import matched

MARGINS = ((20e-6, 0.01), (4e-6, 0.02))
"""Least seconds of a call, and the share by which its isolated speed may differ from that in-process. Within this
distance of the target the two verdicts may differ too. Shorter calls have the last share, and no limit."""
LEAST_WITHIN, MOST_MEDIAN = 0.95, 0.002
"""The share of comparisons that must be within their margin, and the most by which the median may be off."""
_HEAD = ("case", "call", "in-process", "", "isolated", "", "difference", "")


@dataclass(frozen=True)
class Pair:
    """A case in both runs."""

    here: Case
    apart: Case

    @property
    def seconds(self) -> float:
        """Of a call of the candidate, in-process; 0 if it was not timed."""
        return self.here.candidate_seconds or 0.0

    @property
    def margin(self) -> float:
        """The share by which the speeds may differ."""
        return next((share for least, share in MARGINS if self.seconds >= least), MARGINS[-1][1])

    @property
    def difference(self) -> float | None:
        """Isolated speed over that in-process, less 1; None unless both were timed."""
        return self.apart.speed / self.here.speed - 1.0 if self.here.speed and self.apart.speed else None

    @property
    def said(self) -> str:
        """Words about verdicts or speeds that differ by more than they may; empty if none do."""
        if self.here.verdict != self.apart.verdict:
            near = self.here.target and self.here.speed and abs(self.here.speed / self.here.target - 1.0) < self.margin
            return "near its target" if near else "OTHER VERDICT"
        off = self.difference is not None and self.seconds >= MARGINS[-1][0] and abs(self.difference) > self.margin
        return f"more than {100 * self.margin:.0f} %" if off else ""


def pairs_of(here: Sequence[Case], apart: Sequence[Case]) -> list[Pair]:
    """The timed cases of both runs. UserError for records without such cases, or of different cards."""
    both = [Pair(one, two) for one, two, _ in matched(here, apart) if one and two]
    found = [one for one in both if one.here.target is not None and not one.here.aspect]
    if not found:
        raise UserError("no gated case stands in both records")
    machines = {(one.here.gpu or one.here.cpu, one.apart.gpu or one.apart.cpu) for one in found}
    if unlike := [f"{one} and {two}" for one, two in machines if one != two]:
        raise UserError(f"the records are of different machines: {', '.join(sorted(unlike))}")
    if not any("isolated" in (one.apart.clock_note or "") for one in found):
        raise UserError("no case of the second record was measured isolated: give the in-process record first")
    return found


def rows(pairs: Sequence[Pair]) -> list[tuple[str, ...]]:
    """A row for each pair, with the head."""
    found: list[tuple[str, ...]] = [_HEAD]
    for one in pairs:
        off = "-" if one.difference is None else f"{100 * one.difference:+.2f} %"
        sides = [part for side in (one.here, one.apart) for part in (figures.ratio(side.speed), side.verdict)]
        what = f"{figures.label(one.here)}, {figures.rival(one.here)}"
        found.append((what, figures.seconds(one.seconds or None), *sides, off, one.said))
    return found


def verdict(pairs: Sequence[Pair]) -> tuple[bool, str]:
    """(True if all agree as well as they should, a sentence with the counts)."""
    offs = [one.difference for one in pairs if one.difference is not None]
    long = [one for one in pairs if one.difference is not None and one.seconds >= MARGINS[-1][0]]
    within = sum(abs(one.difference or 0.0) <= one.margin for one in long)
    other = sum(one.said == "OTHER VERDICT" for one in pairs)
    middle = statistics.median(offs) if offs else 0.0
    met = sum(one.here.verdict == one.apart.verdict for one in pairs)
    said = (
        f"{len(pairs)} cases: {met} with the same verdict, {other} with another one that no margin explains; median "
        f"difference {100 * middle:+.2f} %; {within} of {len(long)} within 1 % (from 20 us on) or 2 % (from 4 us on)"
    )
    good = not other and abs(middle) <= MOST_MEDIAN and within >= LEAST_WITHIN * len(long)
    return good, said


def isolated_table(path: Path, filters: Mapping[str, str]) -> str:
    """The pairs of an isolated record and of the in-process record `here=NAME` beside it."""
    name = filters.get("here")
    if name is None:
        raise UserError(f"{path}: a table of isolated cases needs here=NAME, the record in-process beside it")
    pairs = pairs_of(read_record(path.parent / name), read_record(path))
    head, *others = rows(pairs)
    body = [tuple(escaped(cell) for cell in row) for row in others]
    table = grid([head, ("---", "---:", "---:", "---", "---:", "---", "---:", "---"), *body])
    return f"{table}\n\n{verdict(pairs)[1]}. Measured on one {environment(pairs[0].apart)}."
