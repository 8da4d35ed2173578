"""Write a static site of records: what needs attention, all cases, each case with its history.

Every record is one page, usually one card's. The versions of a record that git holds are its
history. The site asks no other host for anything, and any server of files can publish it.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from perfsuite.cli.places import record_or_latest
from perfsuite.exporters.html import costs_of
from perfsuite.history.record_versions import acceptances_in, repository_address, test_lines, versions_of
from perfsuite.report.page.data import Links, Report, report_of
from perfsuite.report.page.site import write_site
from perfsuite.report.page.timeline import Version

HELP = "write a static site of records, one page a card, for GitHub Pages and the like"
EXAMPLE = """example:
  perfsuite site public                                        # the newest record under .perfsuite/
  perfsuite site public records/h200/gates.jsonl records/h100/gates.jsonl --asv .perfsuite/asv/html"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, metavar="DIR", help="a new or empty folder, or a site written before")
    records = "records, the first one's page is the front (default: the newest run's)"
    parser.add_argument("records", nargs="*", type=Path, metavar="RECORD", help=records)
    parser.add_argument("--asv", type=Path, metavar="DIR", help="also copy the page that asv published, to DIR/asv")
    address = "address of the repository's page, for links (default: CI's variables, then git's origin)"
    parser.add_argument("--repository", metavar="URL", help=address)


def run(arguments: argparse.Namespace) -> int:
    """Write the site; the exit code is 0 with any verdicts."""
    paths = arguments.records or [record_or_latest(None)]
    given = []
    for path in paths:
        versions = versions_of(path)
        card = versions[-1].setting[0] or "CPU"
        given.append((card, versions))
    root = paths[0].resolve().parent
    address = arguments.repository.rstrip("/") if arguments.repository else repository_address(root)

    def report(versions: Sequence[Version], title: str) -> Report:
        links = Links(address, test_lines(root, versions[-1].cases))
        title, accepted = f"perfsuite: {title}", acceptances_in(root)
        return report_of(versions, title=title, links=links, costs=costs_of, accepted=accepted)

    for page in write_site(arguments.folder, given, report, arguments.asv):
        print(page)
    return 0
