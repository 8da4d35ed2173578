"""Compare two records case by case: speeds, shares of the roofline, limits, errors, verdicts.

Cases are matched by test, label and the order of the calls. A case got slower if its whole
interval lies below the old one and the ratio fell by the least change or more; a share of the
roofline has no interval. "yardstick" means that the kernel is as it was, and the rival, the
ceiling or the target changed. Records of different cards, harness versions, clocks or cache
states are refused.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from perfsuite.outcome import UserError
from perfsuite.record.case import Case
from perfsuite.record.index_db import open_index
from perfsuite.record.store import read_record
from perfsuite.report import figures, isolated
from perfsuite.report.case_index import LARGE_BYTES, compared, indexed
from perfsuite.report.difference import (
    LEAST_CHANGE,
    REGRESSIONS,
    Change,
    differences,
    environments_apart,
    lines,
    unlike,
    versions_changed,
)
from perfsuite.report.markdown import environment
from perfsuite.report.terminal import print_lines

HELP = "what changed between two records; exit 1 on a regression"
EXAMPLE = """example:
  perfsuite compare records/h200/gates.jsonl .perfsuite/runs/20260101T120000Z-4711.jsonl
  perfsuite compare before.jsonl after.jsonl --least 0.02
  perfsuite compare --isolated in-process.jsonl isolated.jsonl

exit codes: 0 nothing got worse, 1 something did, 2 the records cannot be compared"""

_STYLES = dict.fromkeys(REGRESSIONS, "red") | {"worse verdict": "bold red"}
_STYLES |= dict.fromkeys(("faster", "cheaper", "more accurate", "better verdict"), "green")
_STYLES |= dict.fromkeys(("gone", "unlike", "unmatched", "yardstick"), "yellow")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("before", type=Path, metavar="BEFORE", help="a record")
    parser.add_argument("after", type=Path, metavar="AFTER", help="another, of a later run")
    least = f"least change of the ratio that counts (default {LEAST_CHANGE:g})"
    parser.add_argument("--least", type=float, default=LEAST_CHANGE, metavar="SHARE", help=least)
    parser.add_argument("--allow-unlike", action="store_true", help="compare although card, harness or clock differ")
    apart = "BEFORE is a run in-process, AFTER the same cases with --perf-isolate: speeds and verdicts side by side"
    parser.add_argument("--isolated", action="store_true", help=apart)
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> int:
    """Print the changes; 1 if one of them is a regression."""
    if not 0.0 <= arguments.least < 1.0:
        raise UserError(f"--least is {arguments.least:g}; it must be at least 0 and less than 1")
    paths, least = (arguments.before, arguments.after), arguments.least
    if arguments.isolated:
        return _isolated(*paths, plain=arguments.json)
    large = max(path.stat().st_size if path.exists() else 0 for path in paths) > LARGE_BYTES
    before, after, apart, changes, same = (_by_index if large else _by_reading)(*paths, least)
    if apart and not arguments.allow_unlike:
        raise UserError(f"the records are not alike: {'; '.join(apart)}. --allow-unlike compares them all the same")
    if arguments.json:
        print(json.dumps(_plain(before, after, apart, changes, same), indent=1))
        return 1 if any(change.regression for change in changes) else 0
    for which, cases in (("before", before), ("after", after)):
        print(f"{which + ':':<8}{environment(cases[0])}")
    for sentence in versions_changed(before, after):
        print(f"version: {sentence}")
    print_lines([*(("unlike", f"unlike: {sentence}") for sentence in apart), *lines(changes, same=same)], _STYLES)
    return 1 if any(change.regression for change in changes) else 0


def _isolated(here: Path, apart: Path, *, plain: bool) -> int:
    """Print both runs side by side; 1 if they agree less than they should."""
    pairs = isolated.pairs_of(read_record(here), read_record(apart))
    good, said = isolated.verdict(pairs)
    if plain:
        cases = [
            {
                "case": one.here.case,
                "seconds": one.seconds,
                "in_process": {"speed": one.here.speed, "verdict": one.here.verdict},
                "isolated": {"speed": one.apart.speed, "verdict": one.apart.verdict},
                "difference": one.difference,
                "said": one.said,
            }
            for one in pairs
        ]
        print(json.dumps({"agree": good, "sentence": said, "cases": cases}))
        return int(not good)
    table = isolated.rows(pairs)
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    for row in table:
        cells = zip(row, widths, (str.ljust, str.rjust, *(str.rjust, str.ljust) * 3), strict=True)
        print("  ".join(aligned(cell, width) for cell, width, aligned in cells).rstrip())
    print(said)
    return int(not good)


def _plain(before: list[Case], after: list[Case], apart: list[str], changes: list[Change], same: int) -> dict[str, Any]:
    """The comparison as plain values; of each case its values and verdicts on both sides."""
    rows: list[dict[str, Any]] = []
    for change in changes:
        row: dict[str, Any] = {"case": change.case, "kind": change.kind, "regression": change.regression}
        row |= {"factor": change.factor, "notes": list(change.notes)}
        for side, case in (("before", change.before), ("after", change.after)):
            row[side] = case and {"test": case.test, "verdict": case.verdict, "value": figures.speed(case)}
        rows.append(row)
    environments = {"before": environment(before[0]), "after": environment(after[0])}
    return environments | {"unlike": apart, "versions": versions_changed(before, after), "same": same, "changes": rows}


Found = tuple[list[Case], list[Case], list[str], list[Change], int]
"""Cases of both records with all of their environments, the first case first; the clauses of `unlike`; the changes;
the number of other cases, which are the same."""


def _by_reading(one: Path, two: Path, least: float) -> Found:
    before, after = read_record(one), read_record(two)
    return before, after, unlike(before, after), differences(before, after, least=least), 0


def _by_index(one: Path, two: Path, least: float) -> Found:
    index = open_index(Path.cwd())
    if index.trouble:
        print(f"perfsuite compare: {index.trouble}", file=sys.stderr)
    before, after = indexed(index, one), indexed(index, two)
    found = compared(index, before, after, least=least)
    apart = environments_apart(before.environments, after.environments) + found.clocks
    return before.environments, after.environments, apart, found.changes, found.same
