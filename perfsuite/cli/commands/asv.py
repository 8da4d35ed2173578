"""Prepare and check the history that asv keeps; `perfsuite export asv` adds a record to it.

`cases` lists the gated cases of a suite, without measuring them, for benchmarks_asv/cases.json.
With --problem it also follows problems that no test measures. `machine` registers this machine
with asv (in ~/.asv-machine.json) and prints its name. `page` mends the page that asv published:
short names, links to commits, regressions of the newest harness, and its libraries beside it.
`check` reads every file of the history.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from perfsuite.cli.asv_machine import this_machine
from perfsuite.cli.asv_problems import listed, read_pairs
from perfsuite.cli.callables import load_callable
from perfsuite.cli.problem_specs import problem_of
from perfsuite.exporters.asv import RESULTS
from perfsuite.history.asv_files import asv_itself, check_results, read_declared
from perfsuite.history.page import settle
from perfsuite.history.page_words import make_readable
from perfsuite.history.record_versions import repository_address
from perfsuite.history.series import declared, joined, of_kernels
from perfsuite.outcome import UserError
from perfsuite.record.store import read_record

HELP = "prepare and check asv's history of a suite"
EXAMPLE = """example:
  perfsuite asv cases tests/perf --output benchmarks_asv/cases.json
  perfsuite asv cases --problem 'kernels.py:RMSNorm(8192, 4096)' --candidate kernels.py:rmsnorm \\
      --output benchmarks_asv/cases.json
  perfsuite asv check

exit codes: 0 done, 1 --check finds a list that is out of date, 2 bad input or a broken history, 130 interrupted"""
PAGE_CACHE = Path(".perfsuite/asv/libraries")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    kinds = parser.add_subparsers(dest="kind", required=True, metavar="{cases,check,machine,page}")
    cases = kinds.add_parser("cases", help="list the gated cases of a suite, measuring nothing")
    cases.add_argument("tests", nargs="*", default=["tests/perf"], help="paths for pytest (default tests/perf)")
    cases.add_argument("--output", type=Path, help="where to write (default: standard output)")
    cases.add_argument(
        "--kernels", type=Path, metavar="RECORD",
        help="list the compiled kernels of this record (default: those that --output lists already)",
    )  # fmt: skip
    cases.add_argument(
        "--problem", action="append", default=[], metavar="SPEC",
        help="also follow a problem without a test; repeat it, each with its --candidate",
    )  # fmt: skip
    cases.add_argument("--candidate", action="append", default=[], metavar="MODULE:FUNCTION", help="its kernel")
    cases.add_argument("--check", action="store_true", help="write nothing; exit 1 where --output is out of date")
    check = kinds.add_parser("check", help="read every file of the history; exit 2 at the first broken one")
    check.add_argument("--results", type=Path, default=RESULTS, help=f"asv's results folder (default {RESULTS})")
    machine = kinds.add_parser("machine", help="register this machine with asv, and print its name")
    machine.add_argument("--portable", action="store_true", help="the processor, also where there is a GPU")
    machine.add_argument("--name", help="name of the machine (default: the card's model)")
    page = kinds.add_parser("page", help="make a page that asv published readable, and independent of other hosts")
    page.add_argument("html", type=Path, metavar="HTML", help="the folder that asv published")
    address = "address of the repository's page, for links (default: CI's variables, then git's origin)"
    page.add_argument("--repository", metavar="URL", help=address)
    page.add_argument("--cache", type=Path, default=PAGE_CACHE, help=f"folder of the libraries (default {PAGE_CACHE})")


def run(arguments: argparse.Namespace) -> int:
    return {"cases": _cases, "check": _check, "machine": _machine, "page": _page}[arguments.kind](arguments)


def _cases(arguments: argparse.Namespace) -> int:
    output = arguments.output
    if arguments.check and output is None:
        raise UserError("--check compares with a file: name the file by --output")
    if len(arguments.problem) != len(arguments.candidate):
        raise UserError(
            f"there are {len(arguments.problem)} --problem and {len(arguments.candidate)} --candidate; "
            "each problem needs one candidate"
        )
    named = zip(arguments.problem, arguments.candidate, strict=True)
    new = [{"problem": problem, "candidate": candidate} for problem, candidate in named]
    for pair in new:  # a bad name gets its error here, before pytest fails on it
        problem_of(pair["problem"])
        load_callable(pair["candidate"])
    before = read_pairs(output) if output is not None else []
    pairs = [*before, *(pair for pair in new if pair not in before)]
    groups = listed(arguments.tests, pairs)
    # A listing has no compiled kernels: only a build for a card reports them, on a card.
    if arguments.kernels is not None:
        kept = declared(read_record(arguments.kernels))
    else:
        kept = read_declared(output) if output is not None else {}
    document = {"groups": joined(groups, of_kernels(kept))} | ({"problems": pairs} if pairs else {})
    text = json.dumps(document, indent=1) + "\n"
    if output is None:
        print(text, end="")
        return 0
    if output.exists() and output.read_text(encoding="utf-8") == text:
        print(f"{output}: up to date")
        return 0
    if arguments.check:
        print(f"{output}: out of date; run `perfsuite asv cases --output {output}`")
        return 1
    output.write_text(text, encoding="utf-8")
    print(f"{output}: written")
    return 0


def _check(arguments: argparse.Namespace) -> int:
    print(f"{arguments.results}: {check_results(arguments.results)} results, all readable")
    return 0


def _page(arguments: argparse.Namespace) -> int:
    address = arguments.repository.rstrip("/") if arguments.repository else repository_address(Path.cwd())
    count = make_readable(arguments.html, address)
    print(f"{arguments.html}: {count} regressions of the newest harness; commits are links to {address or 'nothing'}")
    print(f"{arguments.html}: {settle(arguments.html, arguments.cache)} libraries beside the page")
    return 0


def _machine(arguments: argparse.Namespace) -> int:
    machine = this_machine(portable=arguments.portable, name=arguments.name)
    asv_itself().machine.MachineCollection.save(machine["machine"], machine)
    print(machine["machine"])
    return 0
