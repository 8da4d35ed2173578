"""Join records into one with one verdict: those of a suite's parts (--perf-shard), of several card
models, or both.

All parts of a suite must be there, each once, of one commit and one partition. The exit code is
that of one run of the whole suite. `perfsuite verify`, `compare`, `report` and `export` take the
new record as they take a run's.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections import Counter
from pathlib import Path

from perfsuite.cli.places import check_place
from perfsuite.outcome import UserError, Verdict
from perfsuite.record.merging import Merged, cards_of, merge
from perfsuite.report import by_card, figures, terminal
from perfsuite.report.difference import versions_changed

HELP = "join the records of a suite's parts and of card models into one verdict"
EXAMPLE = """example:
  perfsuite merge part-*.jsonl --output gates.jsonl
  perfsuite merge h100.jsonl h200.jsonl --output both.jsonl

exit codes: 0 all met, 1 something is wrong or missed, 2 the records do not belong together, or are
no records, 20 undecided, 21 nothing was measured"""

_STYLES = {"": "bold", "MET": "green", "MISSED": "red", "WRONG": "bold red", "UNDECIDED": "yellow"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("records", nargs="+", type=Path, metavar="RECORD", help="a record of a part, or of a whole run")
    parser.add_argument("--output", type=Path, metavar="FILE", required=True, help="the record to write")
    parser.add_argument("--any-commit", action="store_true", help="let each card model be of another commit")
    parser.add_argument("--markdown", action="store_true", help="print the table in markdown")
    parser.add_argument("--json", action="store_true", help="print JSON: the exit code, and the verdicts of each card")


def run(arguments: argparse.Namespace) -> int:
    """Write the joined record, print its table, return the exit code of the whole."""
    output: Path = arguments.output
    check_place("--output", output)
    if output.exists() and output.resolve() in (path.resolve() for path in arguments.records):
        raise UserError(f"--output is {str(output)!r}, which is one of the records; name another file")
    merged = merge(arguments.records, any_commit=arguments.any_commit)
    if not merged.cases:
        print(f"nothing was measured in {len(merged.runs)} records; {output} is not written")
        return merged.exit
    merged.write(output)
    if arguments.json:
        counts = by_card.counts(merged.cases)
        facts = {"record": str(output), "exit": merged.exit, "records": len(merged.runs), "cards": counts}
        print(json.dumps(facts, indent=1))
    elif arguments.markdown:
        print(by_card.markdown_table(merged.cases))
    else:
        _print(merged, output)
    return merged.exit


def _print(merged: Merged, output: Path) -> None:
    cases = merged.cases
    if len(by_card.cards(cases)) > 1:
        lines = by_card.table(cases)
    else:
        shown = [case for case in cases if case.verdict is not Verdict.MET]
        lines = terminal.table(shown, shutil.get_terminal_size((terminal.WIDTH, 24)).columns) if shown else []
    terminal.print_lines([*lines, *terminal.sentences(cases)], _STYLES)
    for sentence in _apart(merged):
        print(f"note: {sentence}")
    for card, counted in by_card.counts(cases).items():
        print(f"{card}: {counted}")
    print(f"{output}: {figures.counts(cases)}, from {len(merged.runs)} records; exit code {merged.exit}")


def _apart(merged: Merged) -> list[str]:
    """Versions that differ between the records of one card model."""
    found: Counter[str] = Counter()
    first: dict[str, Path] = {}
    for path, one in merged.runs.items():
        for card in cards_of(one):
            begun = first.setdefault(card, path)
            if one.cases and merged.runs[begun].cases:
                found.update(f"{card}: {said}" for said in versions_changed(merged.runs[begun].cases, one.cases))
    return list(found)
