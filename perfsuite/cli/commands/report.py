"""Show a record: a table with the worst case first, and a sentence for each case that is not met.

`perfsuite export` lists all forms of a record. The HTML page needs no other file. It says what
needs attention, since which commit and why, lists all cases in a grid with filters, and shows
each case in depth. The versions of the record that git holds are its history.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from perfsuite.cli.places import check_place, record_or_latest
from perfsuite.cli.reports import report_with_history
from perfsuite.exporters.listing import load
from perfsuite.outcome import UserError
from perfsuite.record.atomic_write import write_whole
from perfsuite.record.places import OWN_FOLDER
from perfsuite.record.store import read_run
from perfsuite.report import figures, markdown, step_summary, terminal
from perfsuite.report.page import libraries
from perfsuite.report.page.render import render
from perfsuite.report.worst import read_worst

HELP = "show a record as a table, in the terminal or as markdown, or as one HTML page"
EXAMPLE = """example:
  perfsuite report                                    # the newest record under .perfsuite/
  perfsuite report records/h200/gates.jsonl --markdown
  perfsuite report new.jsonl --against old.jsonl --markdown >> "$GITHUB_STEP_SUMMARY"
  perfsuite report records/h200/gates.jsonl --html report.html
  perfsuite report new.jsonl --against old.jsonl --html report.html
  perfsuite report records/h200/gates.jsonl --against d224bf9 --html report.html"""

MOST_SHOWN = 1000
"""Cases that the terminal shows without --all, the worst of the record."""
_STYLES = {"": "bold", "MET": "green", "MISSED": "red", "WRONG": "bold red", "UNDECIDED": "yellow"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("record", nargs="?", type=Path, metavar="RECORD", help="a record (default: the newest run's)")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--markdown", action="store_true", help="print a summary in markdown, for CI")
    form.add_argument("--html", type=Path, metavar="FILE", help="write one self-contained page")
    against = "with --html or --markdown: compare with this record or recorded commit (default: the version before)"
    parser.add_argument("--against", metavar="RECORD|COMMIT", help=against)
    address = "with --html or --markdown: the repository's page, for links (default: CI's variables, then git's origin)"
    parser.add_argument("--repository", metavar="URL", help=address)
    form.add_argument("--fetch-libraries", action="store_true", help="fetch the page's libraries by npm, once")
    parser.add_argument("--all", action="store_true", help=f"print every case, not only the {MOST_SHOWN} worst")
    form.add_argument("--json", action="store_true", help="print the cases as JSON, without samples")


def run(arguments: argparse.Namespace) -> int:
    """Print the record; the exit code is 0 with any verdicts."""
    check_place("--html", arguments.html)
    if (arguments.against or arguments.repository) and not (arguments.html or arguments.markdown):
        raise UserError("--against and --repository describe a page: give --html FILE or --markdown too")
    if arguments.fetch_libraries:
        print(libraries.fetch(Path(OWN_FOLDER) / "npm"))
        return 0
    path = record_or_latest(arguments.record)
    if arguments.html:
        write_whole(arguments.html, render(report_with_history(path, arguments.against, arguments.repository)))
        print(arguments.html)
        return 0
    if arguments.markdown:
        report = report_with_history(path, arguments.against, arguments.repository)
        sys.stdout.write(step_summary.summary(report, notes=[markdown.environment(report.now.cases[0])]))
        return 0
    if arguments.json:
        cases = read_run(path, samples=False).cases
        sys.stdout.write(load("json").text(cases, title=f"perfsuite: {path.name}"))
        return 0
    found = read_worst(path, sys.maxsize if arguments.all else MOST_SHOWN)
    print(f"{path}: {markdown.environment(found.first)}")
    if found.run.begin is not None and found.run.unfinished:
        print(f"not whole: {found.run.unfinished}")
    shown = found.run.cases
    width = shutil.get_terminal_size((terminal.WIDTH, 24)).columns
    terminal.print_lines(terminal.table(shown, width) + terminal.sentences(shown), _STYLES)
    if hidden := found.counts.total() - len(shown):
        print(f"and {hidden} more, none of them worse (--all shows them)")
    print(figures.counted(found.counts))
    return 0
