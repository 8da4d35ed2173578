"""Prepare and check the history that asv keeps; `perfsuite export asv` adds a record to it.

`cases` lists the gated cases of a suite, without measuring them, for benchmarks_asv/cases.json.
With --problem it also follows problems that no test measures. `carry` gives stored series the
names that they have today, also after a test was renamed. `machine` registers this machine
with asv (in ~/.asv-machine.json) and prints its name. `page` mends the page that asv published:
short names, links to commits, regressions of the newest harness, and its libraries beside it.
`check` reads every file of the history.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from perfsuite.cli.asv_machine import this_machine
from perfsuite.cli.asv_problems import listed, listed_cases, read_pairs
from perfsuite.cli.callables import load_callable
from perfsuite.cli.problem_specs import problem_of
from perfsuite.exporters.asv import RESULTS
from perfsuite.history.asv_files import DECLARED_FILE, asv_itself, check_results, read_declared
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
  perfsuite asv carry records/gates.jsonl --renamed test_gemm=test_product
  perfsuite asv check

exit codes: 0 done, 1 --check finds a list that is out of date, 2 bad input or a broken history, 130 interrupted"""
PAGE_CACHE = Path(".perfsuite/asv/libraries")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    kinds = parser.add_subparsers(dest="kind", required=True, metavar="{cases,carry,check,machine,page}")
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
    carry = kinds.add_parser("carry", help="give stored series the names that they have today; none is lost")
    carry.add_argument("records", nargs="*", type=Path, metavar="RECORD", help="records that name more series")
    carry.add_argument("--tests", nargs="*", default=["tests/perf"], help="the suite of today (default tests/perf)")
    carry.add_argument(
        "--renamed", action="append", default=[], metavar="OLD=NEW", help="a test function that has another name now"
    )
    carry.add_argument("--results", type=Path, default=RESULTS, help=f"asv's results folder (default {RESULTS})")
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
    return {"cases": _cases, "carry": _carry, "check": _check, "machine": _machine, "page": _page}[arguments.kind](
        arguments
    )


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


def _carry(arguments: argparse.Namespace) -> int:
    from perfsuite.history.carried import Plan, carry, names_of, renamed_tests

    renamed, results = renamed_tests(arguments.renamed), arguments.results
    records = [read_record(path) for path in arguments.records]
    pairs = read_pairs(results.parent / DECLARED_FILE)
    today = [listed_cases(arguments.tests, pairs)] if arguments.tests else []
    done = carry(results, Plan(names_of([*today, *records]), renamed))
    print(f"{results}: {done.moved} values have today's names")
    if done.kept:
        print(f"{results}: {done.kept} values keep their name, for no test of today and no record names their series")
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
