"""Find what costs a program time: hidden waits and their lines, launches, data loading, tensor
cores.

A script runs twice from begin to end: once under torch's profiler, for times, and once
observed, to note waits and products with the lines that caused them. Its own output goes to
stderr. For a case or a function, calls are observed.

exit codes: 0 nothing found; 1 something found; 2 the program fails, or there is no card
"""

from __future__ import annotations

import argparse
import json
import shlex
from dataclasses import asdict, replace
from pathlib import Path

from perfsuite.analyze import diagnosed
from perfsuite.analyze.diagnosis import Finding, Observed, examine
from perfsuite.cli.cards import cards, held, tell
from perfsuite.cli.workloads import FORMS, workload
from perfsuite.outcome import UserError

HELP = "what costs a program or a case time: hidden waits, launches, data loading, sizes"
EXAMPLE = """example:
  perfsuite diagnose train.py --args "--steps 20"
  perfsuite diagnose my_model:layer
  perfsuite diagnose attention:16x16x2048x129 --candidate sdpa"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("program", metavar="SCRIPT|CASE", help=f"a file (.py), {FORMS}")
    parser.add_argument("--args", default="", metavar="TEXT", help="arguments of the script, in one text")
    parser.add_argument("--candidate", metavar="KERNEL", help="the kernel for a case (see `regime --help`)")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> int:
    is_script = arguments.program.endswith(".py")
    if is_script and not Path(arguments.program).is_file():
        raise UserError(f"there is no script {arguments.program}")
    if is_script and arguments.candidate:
        raise UserError("--candidate runs a case; a script calls its own kernels")
    if arguments.args and not is_script:
        raise UserError(f"--args are arguments of a script, and {arguments.program} is not a script")
    seen = _observe(arguments, is_script)
    found = examine(seen)
    if arguments.json:
        observed = asdict(replace(seen, waits={})) | {"waits": {str(at): count for at, count in seen.waits.items()}}
        print(json.dumps({"findings": [asdict(one) for one in found], "observed": observed}, indent=1))
    else:
        _print(arguments.program, found, seen)
    return 1 if found else 0


def _observe(arguments: argparse.Namespace, is_script: bool) -> Observed:
    named = None if is_script else workload(arguments.program, arguments.candidate)
    try:
        words = shlex.split(arguments.args)
    except ValueError as error:
        raise UserError(f"--args {arguments.args!r}: {error}") from None
    with held(cards()[:1]):
        tell(f"{arguments.program}: {'the script runs twice' if is_script else 'calls are timed, then watched'}")
        if named is not None:
            return diagnosed.of_workload(named)
        return diagnosed.of_script(Path(arguments.program), words)


def _print(program: str, found: list[Finding], seen: Observed) -> None:
    busy = min(1.0, seen.busy_seconds / seen.seconds) if seen.seconds else 0.0
    print(f"{program}: {len(found) or 'nothing'} found; device busy {busy:.0%} of {seen.seconds * 1e3:.4g} ms")
    for finding in found:
        print(f"{finding.what}: {finding.evidence}")
        for place in finding.places:
            print(f"  {place}")
        print(f"  -> {finding.advice}")
