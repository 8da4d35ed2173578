"""Measure kernels against a library, side by side: a table, and a record if --output names one.

Both sides are checked against a float64 reference and timed in turn, as a gated test times
them. Without a GPU the portable kernels are measured against torch's CPU library by the host's
clock. A family's options describe the problems, or the command line names them one by one:
FAMILY:SHAPE[:WORD...], path.py:Class(...) or module:Class(...).

exit codes: 0 measured, and met if --at-least is given; 1 wrong or missed; 20 undecided;
21 nothing measured
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from perfsuite import outcome
from perfsuite.cli.bench_case import Plan, measure
from perfsuite.cli.bench_table import print_table
from perfsuite.cli.cards import held, tell
from perfsuite.cli.parsers import Parser, add_choice
from perfsuite.cli.places import check_place
from perfsuite.cli.problem_specs import FORMS, problem_of
from perfsuite.cli.workloads import candidate_of, named_side
from perfsuite.device import cards as devices
from perfsuite.outcome import UserError
from perfsuite.problems.base import Problem
from perfsuite.problems.listing import families
from perfsuite.record.case import Case
from perfsuite.record.journal import Journal
from perfsuite.record.schema import RecordError
from perfsuite.record.store import read_record
from perfsuite.report import units
from perfsuite.settings import DeviceKind, Settings

HELP = "measure kernels against a library: table, record"
EXAMPLE = """example:
  perfsuite bench attention --seq-lengths 512 1024 2048 --batch-size 2 --num-heads 8 --head-dim 64 \\
      --dtype fp16 --against sdpa sdpa:flash --output results.json
  perfsuite bench gemm --sizes 512x512x512 1024x1024x1024 --dtype fp16 --output results.json
  perfsuite bench attention --seq-lengths 2048 --head-dim 128 129    # what an odd head_dim costs
  perfsuite bench gemm --sizes 64x64x64 --candidate my_kernels:matmul --against torch:mm
  perfsuite bench 'kernels.py:RMSNorm(8192, 4096)' gemm:64x64x64:bf16 --candidate kernels.py:run

`perfsuite bench FAMILY --help` lists the options. `perfsuite report`, `compare` and `roofline`
read the record."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the first word; a family's options depend on it."""
    known = {name: textwrap.shorten((kind.__doc__ or "").partition("\n")[0], 80) for name, kind in families().items()}
    add_choice(parser, "family", known, metavar="FAMILY|CASE", what=f"one of the families below, or {FORMS}")


def run(arguments: argparse.Namespace) -> int:
    """Measure every case, print a table for each family, write the record."""
    family = families().get(arguments.family)
    prog = f"perfsuite bench {arguments.family if family else 'CASE'}"
    parser = Parser(prog=prog, description=f"Measure {family.family if family else 'any problems'}.")
    if family is None:
        parser.add_argument("cases", nargs="+", metavar="CASE", help=FORMS)
    else:
        family.add_options(parser)
        parser.add_argument("--dtype", choices=sorted(units.LONG_NAMES), help="default: the family's")
    _add_measuring(parser)
    given = parser.parse_args(arguments.rest if family else [arguments.family, *arguments.rest])
    _check(given)
    device, why = _device(given.device)
    try:
        problems = family.from_options(given) if family else [problem_of(text) for text in given.cases]
        plans = list(_plans(problems, given))
        settings = Settings(device=device, seconds=given.seconds, cases=len(plans))
    except ValueError as error:
        raise UserError(str(error)) from None
    plans, left_out = _affordable(plans, settings, given.max_flops)
    tell(why or f"measuring on {device}")
    rows: list[tuple[Problem, Case]] = []
    with ExitStack() as until_the_end:
        if device == "cuda":
            until_the_end.enter_context(held(devices.usable_devices(os.environ).cards[:1]))
        journal = until_the_end.enter_context(Journal(given.output)) if given.output else None
        for number, plan in enumerate(plans, start=1):
            tell(f"[{number}/{len(plans)}] {plan.problem.family} {plan.problem.name}")
            rows.append((plan.problem, measure(plan, settings)))
            if journal is not None:
                journal.add(rows[-1][1])
    for sentence in left_out:
        tell(f"left out: {sentence}")
    if given.json:
        for _, case in rows:
            print(json.dumps(case.as_json(samples=False)))
    else:
        for _, same in itertools.groupby(rows, key=lambda row: row[0].family):
            print_table(list(same))
    if not rows:
        return outcome.EXIT_NOTHING_MEASURED
    if given.output:
        tell(f"record: {given.output}")
    verdicts = {case.verdict for _, case in rows}
    if verdicts & {outcome.Verdict.WRONG, outcome.Verdict.MISSED}:
        return outcome.EXIT_MISSED
    return outcome.EXIT_UNDECIDED if outcome.Verdict.UNDECIDED in verdicts else outcome.EXIT_MET


def _add_measuring(parser: argparse.ArgumentParser) -> None:
    """The options that do not depend on the family."""
    kernel = "module:function, path.py:function or a library (default: this project's)"
    parser.add_argument("--candidate", metavar="KERNEL", help=kernel)
    rival = "a library, module:function or path.py:function (default: the family's library)"
    parser.add_argument("--against", nargs="+", metavar="RIVAL", help=rival)
    parser.add_argument("--warmup", type=int, default=3, metavar="N", help="calls of each side before (default 3)")
    parser.add_argument("--iterations", type=int, metavar="N", help="spend the time of N calls of each side on a case")
    parser.add_argument("--seconds", type=float, default=1.0, help="time for a case, without --iterations (default 1)")
    parser.add_argument("--at-least", type=float, metavar="SPEED", help="least share of the rival's speed to be met")
    parser.add_argument("--device", choices=("auto", "cuda", "cpu"), default="auto")
    parser.add_argument("--max-flops", type=float, metavar="N", help="on the CPU, leave out cases that cost more")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the record (JSON lines)")
    parser.add_argument("--json", action="store_true", help="print JSON, one case a line, without samples")


def _check(given: argparse.Namespace) -> None:
    """UserError for bad input, before anything is measured."""
    if given.warmup < 0:
        raise UserError(f"--warmup is {given.warmup}; it must be 0 or more")
    if given.iterations is not None and given.iterations < 1:
        raise UserError(f"--iterations is {given.iterations}; it must be at least 1")
    if given.at_least is not None and not 0 < given.at_least < float("inf"):
        raise UserError(f"--at-least is {given.at_least:g}; it must be a positive number")
    output = given.output
    if output is not None and output.is_file() and output.stat().st_size:
        try:
            read_record(output)
        except RecordError as error:
            raise UserError(f"--output would overwrite a file that is not a record: {error}") from None
    check_place("--output", output)


def _plans(problems: Sequence[Problem], given: argparse.Namespace) -> Iterator[Plan]:
    """Each problem with each rival; UserError if a candidate or a rival is missing."""
    for problem in problems:
        candidate = candidate_of(problem, given.candidate)
        for name in given.against or [problem.default_rival]:
            if name is None:
                raise UserError(f"{problem.family} names no library: give a rival by --against module:function")
            rival = name if name in problem.rival_names() else named_side(problem, name, "--against")
            yield Plan(problem, candidate, rival, given.warmup, given.iterations, given.at_least)


def _device(asked: str) -> tuple[DeviceKind, str | None]:
    """The device to measure on, and for a CPU the sentence to print."""
    if asked == "cpu":
        return "cpu", "on the CPU, as requested: torch's CPU library is the rival, the host's clock the timer"
    missing = devices.usable_devices(os.environ).missing
    if missing is None:
        return "cuda", None
    if asked == "cuda":
        raise UserError(f"--device cuda, but {missing}")
    return "cpu", f"no GPU ({missing}): the portable kernels against torch's CPU library, by the host's clock"


def _affordable(plans: Sequence[Plan], settings: Settings, asked: float | None) -> tuple[list[Plan], list[str]]:
    """The cases within the limit that a CPU has, and a sentence for each problem that is left out."""
    most = settings.portable_max_flops if asked is None else asked
    kept = [plan for plan in plans if settings.device == "cuda" or (plan.problem.flops or 0.0) <= most]
    dear = dict.fromkeys(plan.problem for plan in plans if plan not in kept)
    return kept, [
        f"{problem.name} costs {problem.flops:.3g} FLOPs, over the {most:.3g} for a CPU (--max-flops)"
        for problem in dear
    ]
