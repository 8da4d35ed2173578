"""Build commits, run the gates on each, and keep a record of each.

`perfsuite export asv` reads the records, and `perfsuite ab` takes one as its base. The suite
that measures is that of the checkout; the kernels are those of the commits. A record holds
both: "commit" is that of the kernels, "suite" that of the checkout. The command needs no
network, unlike `asv run`. With --asv, asv builds each commit in a separate environment and
adds it to the history; without commits, asv takes the newest that it does not know.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from pathlib import Path

from perfsuite.cli import measured_commits
from perfsuite.cli.asv_benchmarks import PORTABLE_VARIABLE
from perfsuite.cli.asv_machine import this_machine
from perfsuite.history.asv_run import asv_run
from perfsuite.history.builds import FLAVOUR_VARIABLE, build, source_of
from perfsuite.history.children import signals_as_interrupts
from perfsuite.outcome import UserError

HELP = "build commits, run the gates on each, keep a record of each"
EXAMPLE = """example:
  perfsuite history v1.0 v1.1 HEAD --tests tests/perf/test_gemm.py
  perfsuite history HEAD~1 HEAD --portable --output .perfsuite/history
  perfsuite history unpacked/v0.9 HEAD
  perfsuite history --asv HEAD~1 HEAD"""

OUTPUT = Path(".perfsuite/history")
ASV = (Path("asv.conf.json"), Path("benchmarks_asv/asv.conf.json"))
"""Places of asv's configuration, the first that is there counts."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("commits", nargs="*", metavar="COMMIT", help="a commit, or a folder with a project in it")
    parser.add_argument("--asv", action="store_true", help="measure by asv, into its history")
    places = " or ".join(map(str, ASV))
    parser.add_argument("--config", type=Path, help=f"with --asv: its configuration (default {places})")
    parser.add_argument("--bench", metavar="REGEX", help="with --asv: only series that match (default all)")
    parser.add_argument("--machine", help="with --asv: name of the machine (default: the card's model)")
    parser.add_argument("--tests", nargs="+", default=["tests/perf"], help="paths for pytest (default tests/perf)")
    parser.add_argument("--portable", action="store_true", help="the portable kernels, on the CPU")
    parser.add_argument("--seconds", type=float, default=0.5, help="measuring time a case (default 0.5)")
    parser.add_argument("--runs", type=int, default=1, metavar="COUNT", help="processes a commit, in turn (default 1)")
    parser.add_argument("--output", type=Path, default=OUTPUT, help=f"folder of the records (default {OUTPUT})")
    parser.add_argument("--json", action="store_true", help="print JSON: the verdicts of each record; not with --asv")


def run(arguments: argparse.Namespace) -> int:
    """Build and measure; the exit code is 0 with any verdicts."""
    # SIGTERM is what CI sends at its time limit, SIGHUP what a closed terminal sends.
    with signals_as_interrupts():
        return _checked(arguments)


def _checked(arguments: argparse.Namespace) -> int:
    if not 0.0 < arguments.seconds < 3600.0:
        raise UserError(f"--seconds is {arguments.seconds:g}; it must lie between 0 and 3600")
    if not 1 <= arguments.runs <= 50:
        raise UserError(f"--runs is {arguments.runs}; it must lie between 1 and 50")
    if arguments.json and arguments.asv:
        raise UserError("--json does not go with --asv: asv prints its own results")
    if not arguments.commits and not arguments.asv:
        raise UserError("name a commit, or several (without one, --asv takes those that it does not know)")
    return _by_asv(arguments) if arguments.asv else _run(arguments)


def _run(arguments: argparse.Namespace) -> int:
    root = Path.cwd()
    sources = [source_of(root, name) for name in arguments.commits]
    for name, source in zip(arguments.commits, sources, strict=True):
        print(f"{name} is {source.short}, building", file=sys.stderr if arguments.json else sys.stdout, flush=True)
    builds = [build(source, root / measured_commits.STORE) for source in sources]
    runner = measured_commits.runner_of(arguments)
    made: dict[str, dict[str, int]] = {}
    arguments.output.mkdir(parents=True, exist_ok=True)
    for number in range(1, arguments.runs + 1):
        for source, built in zip(sources, builds, strict=True):
            record = (arguments.output / f"{source.short}-{number}.jsonl").resolve()
            counts = Counter(case.verdict for case in runner.run(built, source.commit, keep=record))
            made[str(record)] = {str(verdict): count for verdict, count in sorted(counts.items())}
            if arguments.json:
                continue
            verdicts = ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items()))
            print(f"{record}: {verdicts}", flush=True)
    if arguments.json:
        print(json.dumps(made, indent=1))
    return 0


def _by_asv(arguments: argparse.Namespace) -> int:
    config = arguments.config or next((path for path in ASV if path.is_file()), ASV[-1])
    if not config.is_file():
        raise UserError(f"--config is {str(config)!r}; there is no such file")
    options = ["--launch-method=forkserver"]  # starting a process a case would take longer than its work
    options += ["--bench", arguments.bench] if arguments.bench else []
    environment = {"PERFSUITE_ASV_OPTIONS": f"--perf-seconds={arguments.seconds!r}"}
    if arguments.portable:
        environment |= {FLAVOUR_VARIABLE: "portable", PORTABLE_VARIABLE: "1"}
    machine = this_machine(portable=arguments.portable, name=arguments.machine)
    asv_run(Path.cwd(), config, arguments.commits, machine, options=options, environment=environment)
    return 0
