"""Turn a record into another format: one that spreadsheets, browsers, CI pages or asv read.

Text is written to standard output, or to the file that --output names. `perfsuite export NAME
--help` lists the options of an exporter.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path

from perfsuite.cli.parsers import add_choice, parser_of
from perfsuite.cli.places import check_place, record_or_latest
from perfsuite.exporters.listing import exporters, load
from perfsuite.record.atomic_write import write_whole
from perfsuite.record.store import cases_of, read_record

HELP = "turn a record into CSV, HTML, markdown, JSON, or samples in asv's history"
EXAMPLE = """example:
  perfsuite export csv --output newest.csv
  perfsuite export html records/h200/gates.jsonl --output gates.html
  perfsuite export asv .perfsuite/bench.jsonl"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_choice(parser, "exporter", exporters())


def run(arguments: argparse.Namespace) -> int:
    """Export, and print the text or the name of the file."""
    exporter = load(arguments.exporter)
    parser = parser_of(f"perfsuite export {arguments.exporter}", exporter)
    parser.add_argument("record", nargs="?", type=Path, metavar="RECORD", help="a record (default: the newest run's)")
    if hasattr(exporter, "add"):
        exporter.add_arguments(parser)
        given = parser.parse_args(arguments.rest)
        print(exporter.add(partial(cases_of, record_or_latest(given.record)), given))
        return 0
    parser.add_argument("--output", type=Path, metavar="FILE", help="write a file (default: standard output)")
    given = parser.parse_args(arguments.rest)
    check_place("--output", given.output)
    path = record_or_latest(given.record)
    text = exporter.text(read_record(path), title=f"perfsuite: {path.name}")
    if given.output is None:
        sys.stdout.write(text)
    else:
        write_whole(given.output, text)
        print(given.output)
    return 0
