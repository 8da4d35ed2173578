"""Add a record to the history that asv keeps, or write down which cases a suite has.

`asv` adds the samples of a record to the result file of its commit, card and Python version, in the names and versions
that benchmarks_asv/ declares, so that `asv publish`, `show` and `compare` see one series. `cases` lists the gated cases
of a suite, without measuring anything, for benchmarks_asv/cases.json. `machine` tells asv (in ~/.asv-machine.json, its
own place for that) what this machine is, and prints its name. `page` puts the libraries that asv's published page
loads from other hosts beside it. `check` reads every file of the history.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from perfsuite.cli.errors import UsageError
from perfsuite.history.commits import HistoryError
from perfsuite.record.store import latest_path, read_record

if TYPE_CHECKING:
    from perfsuite.history.machines import Machine
    from perfsuite.history.series import Declared

HELP = "add a record to asv's history; list the cases of a suite"
EXAMPLE = """example:
  perfsuite export asv .perfsuite/bench.jsonl
  perfsuite export asv records/h200/gates.jsonl --results benchmarks_asv/results
  perfsuite export cases tests/perf --output benchmarks_asv/cases.json"""

RESULTS = Path("benchmarks_asv/results")
PAGE_CACHE = Path(".perfsuite/asv/libraries")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    kinds = parser.add_subparsers(dest="kind", required=True, metavar="{asv,cases,check,machine,page}")
    asv = kinds.add_parser("asv", help="add a record to asv's results")
    asv.add_argument("record", nargs="?", type=Path, metavar="RECORD", help="a record (default: the newest run's)")
    asv.add_argument("--results", type=Path, default=RESULTS, help=f"asv's results folder (default {RESULTS})")
    asv.add_argument("--repo", type=Path, default=Path(), help="the repository of the record's commit (default: .)")
    asv.add_argument("--machine", help="name of the machine (default: the card's model)")
    asv.add_argument("--allow-dirty", action="store_true", help="export a record of a tree with uncommitted changes")
    asv.add_argument("--skip-dirty", action="store_true", help="leave such a record out, say so, and exit with 0")
    cases = kinds.add_parser("cases", help="list the gated cases of a suite, measuring nothing")
    cases.add_argument("tests", nargs="*", default=["tests/perf"], help="what pytest collects (default tests/perf)")
    cases.add_argument("--output", type=Path, help="where to write (default: standard output)")
    cases.add_argument("--kernels", type=Path, metavar="RECORD", help="list the compiled kernels that a record tells "
                       "of; without it those stay that --output lists already")  # fmt: skip
    cases.add_argument("--check", action="store_true", help="write nothing; exit 1 where --output is out of date")
    check = kinds.add_parser("check", help="read every file of the history; exit 2 at the first that is broken")
    check.add_argument("--results", type=Path, default=RESULTS, help=f"asv's results folder (default {RESULTS})")
    machine = kinds.add_parser("machine", help="tell asv what this machine is, and print its name")
    machine.add_argument("--portable", action="store_true", help="the processor, also where there is a GPU")
    machine.add_argument("--name", help="name of the machine (default: the card's model)")
    page = kinds.add_parser("page", help="make a page that asv published independent of other hosts")
    page.add_argument("html", type=Path, metavar="HTML", help="the folder that asv published")
    page.add_argument("--cache", type=Path, default=PAGE_CACHE, help=f"where libraries are kept (default {PAGE_CACHE})")


def run(arguments: argparse.Namespace) -> int:
    """Do it; HistoryError and UsageError become exit code 2."""
    try:
        kinds = {"asv": _asv, "cases": _cases, "check": _check, "machine": _machine, "page": _page}
        return kinds[arguments.kind](arguments)
    except HistoryError as error:
        raise UsageError(str(error)) from None


def _asv(arguments: argparse.Namespace) -> int:
    from perfsuite.history.asv_results import export

    path = arguments.record or latest_path(Path.cwd())
    if path is None:
        raise UsageError("there is no record under .perfsuite/runs here; name one, or run `pytest --gpu`")
    cases = read_record(path)
    if arguments.skip_dirty and any(case["dirty"] for case in cases):
        print(f"{path} was made with uncommitted changes: not exported")
        return 0
    done = export(
        cases, arguments.results, arguments.repo, machine=arguments.machine, allow_dirty=arguments.allow_dirty
    )
    known = f"; {done.known} were there already or have no samples" if done.known else ""
    print(f"{done.file}: samples of {done.added} cases added at {done.commit[:10]} on {done.machine}{known}")
    return 0


def _cases(arguments: argparse.Namespace) -> int:
    from perfsuite.history.asv_results import read_declared
    from perfsuite.history.series import declared, joined, of_kernels

    if arguments.check and arguments.output is None:
        raise UsageError("--check compares with a file: name it by --output")
    groups = listed(arguments.tests)
    # No listing knows the compiled kernels: they are told by a build for a card, on a card.
    if arguments.kernels is not None:
        kept = declared(read_record(arguments.kernels))
    else:
        kept = read_declared(arguments.output) if arguments.output is not None else {}
    text = json.dumps({"groups": joined(groups, of_kernels(kept))}, indent=1) + "\n"
    if arguments.output is None:
        print(text, end="")
        return 0
    old = arguments.output.read_text(encoding="utf-8") if arguments.output.exists() else None
    if old == text:
        print(f"{arguments.output}: up to date")
        return 0
    if arguments.check:
        print(f"{arguments.output}: out of date; run `perfsuite export cases --output {arguments.output}`")
        return 1
    arguments.output.write_text(text, encoding="utf-8")
    print(f"{arguments.output}: written")
    return 0


def listed(tests: list[str]) -> Declared:
    """The series of a suite's gated cases: collected by pytest, answered by nobody."""
    from perfsuite.history.series import declared

    with tempfile.TemporaryDirectory(prefix="perfsuite-cases-") as folder:
        record = Path(folder) / "cases.jsonl"
        line = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-p",
            "perfsuite.pytest_plugin.listing",
            "--gpu",
        ]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST_")}
        done = subprocess.run(
            [*line, f"--perf-record={record}", *tests], capture_output=True, text=True, check=False, env=environment
        )
        if done.returncode != 0 or not record.exists():
            last = (done.stdout + done.stderr).strip().splitlines()[-1:] or ["no output"]
            raise HistoryError(f"pytest could not list {' '.join(tests)} (exit {done.returncode}): {last[0]}")
        return declared(read_record(record))


def _check(arguments: argparse.Namespace) -> int:
    from perfsuite.history.asv_results import check_results

    print(f"{arguments.results}: {check_results(arguments.results)} results, all readable")
    return 0


def _page(arguments: argparse.Namespace) -> int:
    from perfsuite.history.page import settle

    count = settle(arguments.html, arguments.cache)
    print(f"{arguments.html}: {count} libraries beside the page")
    return 0


def _machine(arguments: argparse.Namespace) -> int:
    print(this_machine(portable=arguments.portable, name=arguments.name)["machine"])
    return 0


def this_machine(*, portable: bool, name: str | None) -> Machine:
    """What this machine is, which asv is told too; HistoryError where that takes a torch that is not there."""
    from perfsuite.history.asv_results import asv_itself
    from perfsuite.history.machines import machine_of, named
    from perfsuite.record.fingerprint import fingerprint

    try:
        import torch
    except ImportError as error:
        raise HistoryError(f"{error}: torch is needed to tell what this machine is") from None
    device = "cuda" if torch.cuda.is_available() and not portable else "cpu"
    machine = named(machine_of(fingerprint(Path.cwd(), device=device)), name)
    asv_itself().machine.MachineCollection.save(machine["machine"], machine)
    return machine
