"""Compare two records: cases that got slower or faster against the same rival, new ones, lost
ones.

A case got slower if its whole interval lies below the old one and the ratio fell by the least
change or more. Records of different cards, harness versions, clocks or cache states are
refused.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from perfsuite.outcome import UserError
from perfsuite.record.store import read_record
from perfsuite.report.difference import LEAST_CHANGE, differences, lines, unlike
from perfsuite.report.markdown import environment
from perfsuite.report.terminal import print_lines

HELP = "what changed between two records; exit 1 on a regression"
EXAMPLE = """example:
  perfsuite compare records/h200/gates.jsonl .perfsuite/runs/20260101T120000Z-4711.jsonl
  perfsuite compare before.jsonl after.jsonl --least 0.02

exit codes: 0 nothing got worse, 1 something did, 2 the records cannot be compared"""

_STYLES = {"slower": "red", "worse verdict": "bold red", "faster": "green", "better verdict": "green"}
_STYLES |= {"gone": "yellow", "unlike": "yellow"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("before", type=Path, metavar="BEFORE", help="a record")
    parser.add_argument("after", type=Path, metavar="AFTER", help="another, of a later run")
    least = f"least change of the ratio that counts (default {LEAST_CHANGE:g})"
    parser.add_argument("--least", type=float, default=LEAST_CHANGE, metavar="SHARE", help=least)
    parser.add_argument("--allow-unlike", action="store_true", help="compare although card, harness or clock differ")


def run(arguments: argparse.Namespace) -> int:
    """Print the changes; 1 if one of them is a regression."""
    if not 0.0 <= arguments.least < 1.0:
        raise UserError(f"--least is {arguments.least:g}; it must be at least 0 and less than 1")
    before, after = read_record(arguments.before), read_record(arguments.after)
    apart = unlike(before, after)
    if apart and not arguments.allow_unlike:
        raise UserError(f"the records are not alike: {'; '.join(apart)}. --allow-unlike compares them all the same")
    for which, cases in (("before", before), ("after", after)):
        print(f"{which + ':':<8}{environment(cases[0])}")
    changes = differences(before, after, least=arguments.least)
    print_lines([*(("unlike", f"unlike: {sentence}") for sentence in apart), *lines(changes)], _STYLES)
    return 1 if any(change.regression for change in changes) else 0
