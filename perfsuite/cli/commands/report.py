"""Show a record: a table with the worst case first, and a sentence for each case that is not met.

`perfsuite export` lists all forms of a record. The HTML page needs no other file: it holds
verdicts, speeds with their intervals, roofline, latency and memory by length, accuracy,
telemetry and environment.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from perfsuite.cli.places import check_place, record_or_latest
from perfsuite.exporters.listing import load
from perfsuite.record.atomic_write import write_whole
from perfsuite.record.store import read_record
from perfsuite.report import figures, markdown, terminal

HELP = "show a record as a table, in the terminal or as markdown, or as one HTML page"
EXAMPLE = """example:
  perfsuite report                                    # the newest record under .perfsuite/
  perfsuite report records/h200/gates.jsonl --markdown
  perfsuite report records/h200/gates.jsonl --html report.html"""

_STYLES = {"": "bold", "MET": "green", "MISSED": "red", "WRONG": "bold red", "UNDECIDED": "yellow"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("record", nargs="?", type=Path, metavar="RECORD", help="a record (default: the newest run's)")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--markdown", action="store_true", help="print markdown instead of a terminal's table")
    form.add_argument("--html", type=Path, metavar="FILE", help="write one self-contained page")
    form.add_argument("--json", action="store_true", help="print the cases as JSON, without samples")


def run(arguments: argparse.Namespace) -> int:
    """Print the record; the exit code is 0 with any verdicts."""
    check_place("--html", arguments.html)
    path = record_or_latest(arguments.record)
    cases, title = read_record(path), f"perfsuite: {path.name}"
    if arguments.html:
        write_whole(arguments.html, load("html").text(cases, title=title))
        print(arguments.html)
        return 0
    if arguments.json or arguments.markdown:
        sys.stdout.write(load("json" if arguments.json else "markdown").text(cases, title=title))
        return 0
    print(f"{path}: {markdown.environment(cases[0])}")
    terminal.print_lines(terminal.table(cases) + terminal.sentences(cases), _STYLES)
    print(figures.counts(cases))
    return 0
