"""List the files that unfinished runs left, join those of a record, or remove old ones.

A run that is interrupted or killed leaves NAME.partial.jsonl beside NAME.jsonl, with the cases
that it measured. --join puts the cases of several parts into one record; of a case that several
parts hold, the newest part's counts. The record says that it was joined, so `perfsuite verify`
does not pass it.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from perfsuite.cli.places import check_place
from perfsuite.outcome import UserError
from perfsuite.record.case import Case
from perfsuite.record.places import KEPT_DAYS, partials_below, remove_old_partials
from perfsuite.record.run_lines import Ended
from perfsuite.record.schema import RecordError
from perfsuite.record.store import read_run, write_record
from perfsuite.report import figures
from perfsuite.report.difference import unlike

HELP = "list, join or remove what unfinished runs left"
EXAMPLE = """example:
  perfsuite partial                                            # those below this folder
  perfsuite partial --join whole.jsonl a.partial.jsonl b.partial.jsonl
  perfsuite partial .perfsuite --clean 14                      # remove those older than 14 days

exit codes: 0 done, 2 the parts do not belong together, or are no records"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paths", nargs="*", type=Path, metavar="PATH", help="folders, or with --join parts of a record")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--join", type=Path, metavar="RECORD", help="write the cases of the parts as one new record")
    days = f"remove partial files that are older (without a number: {KEPT_DAYS})"
    what.add_argument("--clean", type=float, nargs="?", const=KEPT_DAYS, metavar="DAYS", help=days)
    parser.add_argument("--json", action="store_true", help="print JSON: each file, and what is in it")


def run(arguments: argparse.Namespace) -> int:
    if arguments.join is not None:
        return _join(arguments)
    for folder in (folders := arguments.paths or [Path()]):
        if not folder.is_dir():
            raise UserError(f"{str(folder)!r} is no folder; --join takes files")
    if arguments.clean is not None:
        if not arguments.clean >= 0:
            raise UserError(f"--clean is {arguments.clean:g}; it must be a number of days, 0 or more")
        removed = [path for folder in folders for path in remove_old_partials(folder, days=arguments.clean)]
        if arguments.json:
            print(json.dumps({"removed": list(map(str, removed))}, indent=1))
            return 0
        print("\n".join([*(f"removed {path}" for path in removed), f"{len(removed)} partial files removed"]))
        return 0
    found = [path for folder in folders for path in partials_below(folder)]
    if arguments.json:
        print(json.dumps({"partial": {str(path): _about(path) for path in found}}, indent=1))
        return 0
    for path in found:
        print(f"{path}: {_about(path)}")
    print(f"{len(found)} partial files")
    return 0


def _about(path: Path) -> str:
    hours = (time.time() - path.stat().st_mtime) / 3600.0
    try:
        recorded = read_run(path)
    except RecordError as error:
        return str(error).removeprefix(f"{path}: ")
    return f"{figures.counts(recorded.cases)}; {recorded.unfinished or 'finished'}; {hours:.1f} hours old"


def _join(arguments: argparse.Namespace) -> int:
    record: Path = arguments.join
    parts: Sequence[Path] = arguments.paths
    if len(parts) < 1:
        raise UserError("--join needs the parts: name one partial file or more")
    check_place("--join", record)
    if record.exists():
        raise UserError(f"--join is {str(record)!r}, which exists; name a new file")
    read = {part: read_run(part).cases for part in sorted(parts, key=lambda part: part.stat().st_mtime)}
    first, *others = read
    for other in others:
        if apart := [*unlike(read[first], read[other]), *_other_commit(read[first], read[other])]:
            raise UserError(f"{first} and {other} do not belong together: {'; '.join(apart)}")
    cases: dict[object, Case] = {}
    for of_part in read.values():
        tests = {case.test for case in of_part}
        # The newest part that holds a test counts for all of its calls.
        cases = {key: case for key, case in cases.items() if case.test not in tests}
        cases |= {(case.test, number): case for number, case in enumerate(of_part)}
    write_record(record, cases.values(), ended=Ended.JOINED)
    if arguments.json:
        print(json.dumps({"record": str(record), "cases": len(cases), "parts": list(map(str, read))}, indent=1))
        return 0
    print(f"{record}: {figures.counts(list(cases.values()))}, joined from {len(read)} files")
    return 0


def _other_commit(before: Sequence[Case], after: Sequence[Case]) -> Iterator[str]:
    one, two = ({(case.commit, case.dirty) for case in cases} for cases in (before, after))
    if one != two:
        yield "they are of different commits"
