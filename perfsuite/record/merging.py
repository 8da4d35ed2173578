"""Joins the records of a suite's parts, and of several card models, into one record with one verdict."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from perfsuite.outcome import EXIT_MET, EXIT_MISSED, EXIT_NOTHING_MEASURED, EXIT_UNDECIDED, UserError, one_line
from perfsuite.record.case import Case
from perfsuite.record.journal import Journal
from perfsuite.record.run_lines import Part
from perfsuite.record.store import RecordedRun, read_run

_EXITS = (EXIT_MET, EXIT_MISSED, EXIT_UNDECIDED, EXIT_NOTHING_MEASURED)
CPU = "CPU"
"""The name of the portable backend among the card models."""
_MUST_AGREE = {"commit": "commit", "harness": "version of the harness"}
"""Facts in which all records agree, field -> name."""


class MergeError(UserError):
    """Records do not belong together; the sentence names them and says why."""

    def __init__(self, sentence: str) -> None:
        super().__init__(one_line(sentence))


@dataclass(frozen=True)
class Merged:
    """Records that belong together."""

    runs: Mapping[Path, RecordedRun]
    """In the order of the card models, and of the parts."""

    @property
    def cases(self) -> list[Case]:
        """All cases."""
        return [case for run in self.runs.values() for case in run.cases]

    @property
    def exit(self) -> int:
        """The exit code of one run of it all: a case not met before a fault of pytest, before one undecided.

        A part that could measure nothing fails the whole, which measured something. If nothing was measured anywhere,
        the whole measured nothing.
        """
        codes = [run.end.exit or 0 for run in self.runs.values() if run.end is not None]
        if not self.cases:
            return next((code for code in codes if code not in _EXITS), EXIT_NOTHING_MEASURED)
        if EXIT_MISSED in codes or EXIT_NOTHING_MEASURED in codes:
            return EXIT_MISSED
        return next((code for code in codes if code not in _EXITS), EXIT_UNDECIDED if EXIT_UNDECIDED in codes else 0)

    def write(self, path: Path) -> None:
        """Write the whole as a record that its run closed; OSError if the file cannot be written."""
        begins = [run.begin.variables if run.begin else {} for run in self.runs.values()]
        variables = {name: value for name, value in begins[0].items() if all(one.get(name) == value for one in begins)}
        journal = Journal(path, variables=variables)
        journal.open()
        try:
            for case in self.cases:
                journal.add(case)
        except BaseException:
            journal.discard()
            raise
        tests = sum(run.end.tests or 0 for run in self.runs.values() if run.end is not None)
        cards = Counter(card for run in self.runs.values() for card in cards_of(run))
        journal.close(exit=self.exit, tests=tests, merged=dict(cards))


def cards_of(run: RecordedRun) -> list[str]:
    """The card models of a record; "CPU" for the portable backend. A case that needed no card does not count."""
    if run.end is not None and run.end.merged:
        return sorted(run.end.merged)
    if run.end is not None and run.end.part is not None:
        return [run.end.part.gpu or CPU]
    return sorted({case.gpu for case in run.cases if case.gpu}) or [CPU]


def merge(paths: Sequence[Path], *, any_commit: bool = False) -> Merged:
    """Read records and check that they are one whole; RecordError or MergeError if they are not.

    any_commit: take records of several commits, each card model's of one.
    """
    runs: dict[Path, RecordedRun] = {}
    for path in paths:
        if path.resolve() in (one.resolve() for one in runs):
            raise MergeError(f"{path} is given twice")
        run = runs[path] = read_run(path, empty=True)
        if run.unfinished:
            raise MergeError(f"{path} is not closed: {run.unfinished}")
        if run.end is None or run.end.exit is None:
            raise MergeError(f"{path} holds no exit code, so its run's verdict is unknown; run it again")
    of_card: dict[str, list[Path]] = defaultdict(list)
    for path, run in runs.items():
        for card in cards_of(run):
            of_card[card].append(path)
    for card, here in of_card.items():
        _check_parts(card, {path: runs[path] for path in here})
    groups = of_card.values() if any_commit else [list(runs)]
    for here in groups:
        for field, named in _MUST_AGREE.items():
            _check_agree({path: _facts(runs[path], field) for path in here}, named)
    ordered = sorted(runs, key=lambda path: (cards_of(runs[path]), _number(runs[path])))
    return Merged({path: runs[path] for path in ordered})


def _number(run: RecordedRun) -> int:
    return run.end.part.number if run.end and run.end.part else 0


def _check_parts(card: str, runs: Mapping[Path, RecordedRun]) -> None:
    """MergeError unless the records are one whole run, or all parts of one partition once."""
    parts: dict[Path, Part] = {path: run.end.part for path, run in runs.items() if run.end and run.end.part}
    if whole := [path for path in runs if path not in parts]:
        if len(runs) > 1:
            other = next(path for path in runs if path != whole[0])
            raise MergeError(f"{whole[0]} is a whole run on {card}, and {other} is of that card too; give one of them")
        return
    named = {"count": "number of parts", "partition": "partition", "tests": "number of tests"}
    named["divided_by"] = "number of cases over which the error rate is divided"
    for field, words in named.items():
        _check_agree({path: {str(getattr(part, field))} for path, part in parts.items()}, words)
    seen: dict[int, Path] = {}
    for path, part in parts.items():
        if part.number in seen:
            raise MergeError(f"{seen[part.number]} and {path} are both part {part.number} of {part.count} on {card}")
        seen[part.number] = path
    (count,) = {part.count for part in parts.values()}
    if missing := sorted(set(range(1, count + 1)) - seen.keys()):
        shown = ", ".join(map(str, missing[:10])) + (", ..." if len(missing) > 10 else "")
        raise MergeError(f"of {count} parts on {card} these are missing: {shown}")


def _facts(run: RecordedRun, field: str) -> set[str]:
    part = run.end.part if run.end else None
    return {str(getattr(case, field)) for case in run.cases} | ({str(getattr(part, field))} if part else set())


def _check_agree(facts: Mapping[Path, Iterable[str]], named: str) -> None:
    """MergeError unless all records have one value of a fact."""
    first: tuple[Path, str] | None = None
    for path, values in facts.items():
        for value in sorted(values):
            if first is None:
                first = path, value
            elif value != first[1]:
                one, two = f"{first[0]} has {first[1]}", f"{path} has {value}"
                raise MergeError(f"the records differ in the {named}: {one}, {two}; they must be of one run")
