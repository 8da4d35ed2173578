"""Print the JSON Schema of a record's lines: every field with its type, its range and its meaning.

It is made from the code that reads records. docs/record.schema.json holds the same.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from perfsuite.cli.places import check_place
from perfsuite.record.atomic_write import write_whole
from perfsuite.record.json_schema import json_schema

HELP = "print the JSON Schema of a record's lines"
EXAMPLE = """example:
  perfsuite schema
  perfsuite schema --output docs/record.schema.json"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--output", type=Path, metavar="FILE", help="write a file (default: standard output)")


def run(arguments: argparse.Namespace) -> int:
    """Print the schema, or write it."""
    check_place("--output", arguments.output)
    text = json.dumps(json_schema(), indent=1)
    if arguments.output is None:
        print(text)
    else:
        write_whole(arguments.output, f"{text}\n")
        print(arguments.output)
    return 0
