"""Show a record: the table, worst first, and a sentence for each case that is not met."""

from __future__ import annotations

import argparse
from pathlib import Path

from perfsuite.cli.errors import UsageError
from perfsuite.record.store import latest_path, read_record
from perfsuite.report import figures, markdown, terminal

HELP = "show a record as a table, in the terminal or as markdown"
EXAMPLE = """example:
  perfsuite report                                    # the newest record under .perfsuite/
  perfsuite report records/h200/gates.jsonl --markdown"""

_STYLES = {"": "bold", "MET": "green", "MISSED": "red", "WRONG": "bold red", "UNDECIDED": "yellow"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("record", nargs="?", type=Path, metavar="RECORD", help="a record (default: the newest run's)")
    parser.add_argument("--markdown", action="store_true", help="print markdown instead of a terminal's table")


def run(arguments: argparse.Namespace) -> int:
    """Print the record; 0 whatever the verdicts in it are."""
    path = arguments.record or latest_path(Path.cwd())
    if path is None:
        raise UsageError("there is no record under .perfsuite/runs here; name one, or run `pytest --gpu`")
    cases = read_record(path)
    if arguments.markdown:
        print(markdown.summary(cases, title=f"perfsuite: {path.name}", notes=[markdown.environment(cases[0])]), end="")
        return 0
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True)
    console.print(f"{path}: {markdown.environment(cases[0])}", markup=False)
    for verdict, line in terminal.table(cases) + terminal.sentences(cases):
        console.print(line, style=_STYLES[verdict], markup=False)
    console.print(figures.counts(cases), markup=False)
    return 0
