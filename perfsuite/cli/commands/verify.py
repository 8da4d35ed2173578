"""Say if a record can be trusted: it is whole, its run closed it, it is of this commit, and the
run was green.

CI calls it after a run of gates. A process that ends without a word (os._exit, the kernel's
out-of-memory killer) may leave exit code 0, and then the record is the only witness.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

from perfsuite.cli.places import record_or_latest
from perfsuite.history.commits import HistoryError, full_commit
from perfsuite.record.places import partials_of
from perfsuite.record.run_lines import Ended
from perfsuite.record.store import RecordedRun, read_run
from perfsuite.report import figures

HELP = "say if a record is whole, closed, of this commit and green; exit 1 if not"
EXAMPLE = """example:
  perfsuite verify .perfsuite/bench.jsonl
  perfsuite verify                              # the newest record under .perfsuite/
  perfsuite verify gates.jsonl --commit v1.2
  perfsuite verify gates.jsonl --checks-at-most 0.3  # of the run's wall time

exit codes: 0 all of it holds, 1 something does not, 2 the file is no whole record"""


def share(text: str) -> float:
    """The share that `text` says; ArgumentTypeError for what is no number from 0 to 1."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 <= value <= 1.0:
        raise argparse.ArgumentTypeError(f"{text!r} is no share; allowed are numbers from 0 to 1")
    return value


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("record", nargs="?", type=Path, metavar="RECORD", help="a record (default: the newest run's)")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--commit", default="HEAD", help="the commit that it must be of (default HEAD)")
    which.add_argument("--any-commit", action="store_true", help="leave the commit out")
    parser.add_argument("--allow-dirty", action="store_true", help="accept a tree with uncommitted changes")
    parser.add_argument(
        "--checks-at-most", type=share, metavar="SHARE", help="most of the cases' wall time that checks may take (0.3)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> int:
    """Print a sentence for each thing that does not hold, or one that all does."""
    path = record_or_latest(arguments.record)
    found = read_run(path, empty=True)
    wrong = [*_closed(path, found), *_green(found), *_checks(found, arguments.checks_at_most)]
    if not arguments.any_commit:
        wrong += _of_commit(found, arguments.commit, allow_dirty=arguments.allow_dirty)
    if arguments.json:
        facts = {"record": str(path), "holds": not wrong, "wrong": wrong, "cases": len(found.cases)}
        facts |= {"counts": figures.counts(found.cases), "checks_share": figures.checks_share(found.cases)}
        print(json.dumps(facts, indent=1))
        return 1 if wrong else 0
    for sentence in wrong:
        print(f"{path}: {sentence}")
    if not wrong:
        of = "" if arguments.any_commit else f", of {_commits(found)[0][:12]}"
        checks = "" if arguments.checks_at_most is None else f"; {_share_text(figures.checks_share(found.cases))}"
        print(f"{path}: whole, closed{of}, green: {figures.counts(found.cases) or 'an empty part of a suite'}{checks}")
    return 1 if wrong else 0


def _closed(path: Path, found: RecordedRun) -> Iterator[str]:
    if found.unfinished:
        yield f"not closed: {found.unfinished}"
    for partial in partials_of(path):
        if partial.stat().st_mtime > path.stat().st_mtime:
            yield f"not the newest: a later run left {partial.name} and did not finish"


def _green(found: RecordedRun) -> Iterator[str]:
    if found.end is None or found.end.end is not Ended.FINISHED:
        bad = [case for case in found.cases if case.verdict != "MET"]
        if bad:
            yield f"not green: {figures.counts(found.cases)}"
    elif found.end.exit is None:
        yield "not green: the record holds no exit code"
    elif found.end.exit != 0:
        yield f"not green: the run ended with exit code {found.end.exit}: {figures.counts(found.cases)}"


def _checks(found: RecordedRun, most: float | None) -> Iterator[str]:
    share = figures.checks_share(found.cases)
    if most is None or (share is not None and share <= most):
        return
    yield f"too much checking: {_share_text(share)}, at most {most:.0%} asked"


def _share_text(share: float | None) -> str:
    return "no case says how long its checks took" if share is None else f"checks took {share:.1%} of the wall time"


def _of_commit(found: RecordedRun, name: str, *, allow_dirty: bool) -> Iterator[str]:
    commits = _commits(found)
    try:
        asked = full_commit(Path.cwd(), name)
    except HistoryError as error:
        yield f"not of this commit: {error}"
        return
    if commits != [asked]:
        yield f"not of this commit: it is of {' and '.join(one[:12] for one in commits)}, not of {asked[:12]} ({name})"
    part = None if found.end is None else found.end.part
    if not allow_dirty and (any(case.dirty for case in found.cases) or (part is not None and part.dirty)):
        yield "not of this commit: the tree had uncommitted changes"


def _commits(found: RecordedRun) -> list[str]:
    part = None if found.end is None else found.end.part
    return sorted({str(case.commit) for case in found.cases} | ({str(part.commit)} if part else set()))
