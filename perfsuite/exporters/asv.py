"""Add a record's samples to asv's history: to the result file of its commit, card and Python.

The series have the names and versions that benchmarks_asv/ declares, so that `asv publish`,
`show` and `compare` see one series.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from pathlib import Path

from perfsuite.history.asv_export import DirtyError, SeveralCardsError, export
from perfsuite.record.case import Case

HELP = "samples in asv's history of this repository"
RESULTS = Path("benchmarks_asv/results")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--results", type=Path, default=RESULTS, help=f"asv's results folder (default {RESULTS})")
    parser.add_argument("--repo", type=Path, default=Path(), help="the repository of the record's commit (default .)")
    parser.add_argument("--machine", help="name of the machine (default: the card's model)")
    parser.add_argument("--allow-dirty", action="store_true", help="export a record of a tree with uncommitted changes")
    parser.add_argument("--skip-dirty", action="store_true", help="skip such a record, report it, and exit with 0")


def add(read: Callable[[], Iterable[Case]], arguments: argparse.Namespace) -> str:
    """Add the samples; HistoryError if the record or the history does not allow it, with all files unchanged.

    read: gives the cases of the record, anew at each call.
    """
    try:
        return _added(read(), arguments)
    except DirtyError:
        if not arguments.skip_dirty:
            raise
        return "the record was made with uncommitted changes: not exported"
    except SeveralCardsError as error:
        # Of a record that joins card models, each is a machine by itself.
        groups = [[case for case in read() if case.gpu == card] for card in error.cards]
        return "\n".join(_added(group, arguments) for group in groups)


def _added(cases: Iterable[Case], arguments: argparse.Namespace) -> str:
    options = {"machine": arguments.machine, "allow_dirty": arguments.allow_dirty and not arguments.skip_dirty}
    done = export(cases, arguments.results, arguments.repo, **options)
    known = f"; {done.known} were there already or have no samples" if done.known else ""
    return f"{done.file}: samples of {done.added} cases added at {done.commit[:10]} on {done.machine}{known}"
