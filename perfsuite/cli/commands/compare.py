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

HELP = "what changed between two records; exit 1 on a regression"
EXAMPLE = """example:
  perfsuite compare records/h200/gates.jsonl .perfsuite/runs/20260101T120000Z-4711.jsonl
  perfsuite compare before.jsonl after.jsonl --least 0.02

exit codes: 0 nothing got worse, 1 something did, 2 the records cannot be compared"""

_STYLES = {"slower": "red", "worse verdict": "bold red", "faster": "green", "better verdict": "green", "gone": "yellow"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("before", type=Path, metavar="BEFORE", help="a record")
    parser.add_argument("after", type=Path, metavar="AFTER", help="another, of a later run")
    parser.add_argument(
        "--least",
        type=float,
        default=LEAST_CHANGE,
        metavar="SHARE",
        help=f"least change of the ratio that counts (default {LEAST_CHANGE:g})",
    )
    parser.add_argument("--allow-unlike", action="store_true", help="compare although card, harness or clock differ")


def run(arguments: argparse.Namespace) -> int:
    """Print the changes; 1 where one is a regression."""
    if not 0.0 <= arguments.least < 1.0:
        raise UserError(f"--least is {arguments.least:g}; it must be at least 0 and less than 1")
    before, after = read_record(arguments.before), read_record(arguments.after)
    apart = unlike(before, after)
    if apart and not arguments.allow_unlike:
        raise UserError(f"the records are not alike: {'; '.join(apart)}. --allow-unlike compares them all the same")
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True)
    for which, cases in (("before", before), ("after", after)):
        console.print(f"{which + ':':<8}{environment(cases[0])}", markup=False)
    for sentence in apart:
        console.print(f"unlike: {sentence}", style="yellow", markup=False)
    changes = differences(before, after, least=arguments.least)
    for kind, line in lines(changes):
        console.print(line, style=_STYLES.get(kind, ""), markup=False)
    return 1 if any(change.regression for change in changes) else 0
