"""Show a record: the table, worst first, and a sentence for each case that is not met; or one HTML page of it all.

The page needs nothing but itself: verdicts, speeds with their intervals, roofline, latency and memory by length,
accuracy, telemetry, environment.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from perfsuite.cli.errors import UsageError
from perfsuite.record.store import latest_path, read_record
from perfsuite.record.whole import write_whole
from perfsuite.report import figures, markdown, terminal

HELP = "show a record as a table, in the terminal or as markdown, or as one HTML page"
EXAMPLE = """example:
  perfsuite report                                    # the newest record under .perfsuite/
  perfsuite report records/h200/gates.jsonl --markdown
  perfsuite report records/h200/gates.jsonl --html report.html"""

_STYLES = {"": "bold", "MET": "green", "MISSED": "red", "WRONG": "bold red", "UNDECIDED": "yellow"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("record", nargs="?", type=Path, metavar="RECORD", help="a record (default: the newest run's)")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--markdown", action="store_true", help="print markdown instead of a terminal's table")
    form.add_argument("--html", type=Path, metavar="FILE", help="write one self-contained page")
    form.add_argument("--json", action="store_true", help="print the cases as JSON, without samples")


def run(arguments: argparse.Namespace) -> int:
    """Print the record; 0 whatever the verdicts in it are."""
    path = arguments.record or latest_path(Path.cwd())
    if path is None:
        raise UsageError("there is no record under .perfsuite/runs here; name one, or run `pytest --gpu`")
    cases = read_record(path)
    if arguments.html:
        write_page(arguments.html, cases, title=f"perfsuite: {path.name}")
        print(arguments.html)
        return 0
    if arguments.json:
        print(
            json.dumps(
                [{name: case[name] for name in case if not name.endswith("samples")} for case in cases], indent=1
            )
        )
        return 0
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


def write_page(file: Path, cases: Sequence[dict[str, Any]], *, title: str) -> None:
    """Write the HTML page; UsageError where it cannot be written. Nothing is left half written."""
    from perfsuite.report.page import page

    text = page(cases, title=title, roofline=_roofline(cases, title))
    try:
        write_whole(file, text)
    except OSError as error:
        raise UsageError(f"--html {error}") from None


def _roofline(cases: Sequence[dict[str, Any]], title: str) -> str | None:
    """The cases under their card's data sheet; None for a card without one, or where no case can be placed."""
    from perfsuite.analyze import roofline_plot
    from perfsuite.analyze.roofline_ceilings import from_data_sheet
    from perfsuite.analyze.roofline_points import points

    gpu = cases[0].get("gpu")
    ceilings = from_data_sheet(gpu) if gpu else None
    found = points(cases, ceilings)[0] if ceilings else []
    return roofline_plot.svg(found, ceilings, title=title) if found and ceilings else None
