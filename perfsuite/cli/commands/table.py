"""Make the tables in documents from the committed records; --check only compares them.

A table stands between two comments:

    <!-- perfsuite:gates records/h200/gates.jsonl family=gemm -->
    <!-- /perfsuite:gates -->

The path is relative to the document; field=pattern keeps the cases that fit. A block
<!-- perfsuite:listing NAME --> lists commands, markers, options, classes and the like.
An unknown NAME lists all names. A block with picture=FILE.svg also draws that file, beside the document.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from perfsuite.cli.listings import LISTINGS
from perfsuite.record.atomic_write import write_whole
from perfsuite.report.blocks import pictures, refresh

HELP = "make the tables in README and docs from the committed records, or check them"
EXAMPLE = """example:
  perfsuite table README.md docs/*.md
  perfsuite table README.md --check

exit codes: 0 done, 1 --check finds a page that is out of date, 2 bad input, 130 interrupted"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("documents", nargs="+", type=Path, metavar="DOCUMENT", help="a markdown file with such blocks")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 where a table is out of date")
    parser.add_argument("--json", action="store_true", help="print JSON: each document and its state")


def run(arguments: argparse.Namespace) -> int:
    """Rewrite the documents, or compare them; 1 if a comparison finds a difference."""
    states: dict[str, str] = {}
    for document in arguments.documents:
        made = refresh(document, LISTINGS)
        for file, text in {document: made, **pictures(document)}.items():
            if file.exists() and text == file.read_text(encoding="utf-8"):
                states[str(file)] = "up to date"
            elif arguments.check:
                states[str(file)] = "out of date"
            else:
                write_whole(file, text)
                states[str(file)] = "made anew"
            if not arguments.json:
                state = states[str(file)]
                remedy = f"; run `perfsuite table {document}`" if state == "out of date" else ""
                print(f"{file}: {state}{remedy}")
    if arguments.json:
        print(json.dumps(states, indent=1))
    return 1 if "out of date" in states.values() else 0
