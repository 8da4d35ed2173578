"""Build two commits, run the gates on both in alternating processes, and report which cases got
slower.

The suite that measures is that of the checkout; the kernels are those of the commits. Each
process yields one number a case: its speed against the library. The verdict rests on these
numbers and on the noise in the card's calibration. If BASE cannot be built any more, a record
may replace it. A folder with a project in it may replace either commit.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from perfsuite.cli import measured_commits
from perfsuite.cli.places import check_place
from perfsuite.history import ab
from perfsuite.history.builds import build, same_contents, source_of
from perfsuite.history.children import signals_as_interrupts
from perfsuite.history.commits import HistoryError, git
from perfsuite.outcome import EXIT_MET, EXIT_UNDECIDED
from perfsuite.record.store import read_record
from perfsuite.report.difference import unlike

HELP = "two commits side by side: what got slower; exit 1 on a regression"
EXAMPLE = """example:
  perfsuite ab origin/main
  perfsuite ab v1.0 HEAD --tests tests/perf/test_gemm.py
  perfsuite ab records/h200/gates.jsonl HEAD
  perfsuite ab HEAD~3 --portable

exit codes: 0 no case got slower, 1 one did or is wrong, 2 bad input, 20 undecided
Ctrl-C and SIGTERM end the measurement; verdicts reached until then are printed."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("base", metavar="BASE", help="a commit, a folder, or a record of one")
    parser.add_argument("head", nargs="?", default="HEAD", metavar="HEAD", help="a commit, or a folder (default HEAD)")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table as markdown, for a CI page")
    parser.add_argument("--anyway", action="store_true", help="measure although both builds hold the same kernels")
    parser.add_argument("--json", action="store_true", help="print JSON: every case's verdict and figures")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write that JSON to a file as well")
    measured_commits.add_measuring(parser)


def run(arguments: argparse.Namespace) -> int:
    """Compare, and print a line for each case, worst first."""
    # SIGTERM is what CI sends at its time limit, SIGHUP what a closed terminal sends.
    with signals_as_interrupts():
        return _checked(arguments)


def _checked(arguments: argparse.Namespace) -> int:
    measured_commits.check(arguments)
    check_place("--markdown", arguments.markdown, replaced=False)
    check_place("--output", arguments.output, replaced=False)
    root = Path.cwd()
    record = Path(arguments.base)
    given = read_record(record) if record.is_file() else []
    names = {ab.HEAD: arguments.head} if given else {ab.BASE: arguments.base, ab.HEAD: arguments.head}
    sources = {side: source_of(root, name) for side, name in names.items()}
    if arguments.head == "HEAD" and git(root, "status", "--porcelain", "--untracked-files=no"):
        _tell(arguments, "uncommitted changes are not part of the comparison")
    for side, source in sources.items():
        _tell(arguments, f"{side}: {names[side]} is {source.short}, building")
    builds = {side: build(source, root / measured_commits.STORE) for side, source in sources.items()}
    if not given and not arguments.anyway and same_contents(builds[ab.BASE], builds[ab.HEAD]):
        flavour = "portable kernels" if arguments.portable else "kernels"
        _tell(arguments, f"both builds hold the same {flavour}, byte for byte: nothing to measure (--anyway measures)")
        _give(arguments, [])
        return EXIT_MET
    runner, noise = measured_commits.runner_of(arguments), measured_commits.NoiseOfCard(arguments)
    progress = Progress(arguments.pairs * len(sources))

    def measure(side: str, tests: Sequence[str]) -> Sequence[Any]:
        _tell(arguments, f"{side}: {progress.next()}" + (f", {len(tests)} undecided tests" if tests else ""))
        cases = runner.run(builds[side], sources[side].commit, tests)
        noise.see(cases)
        if given and (apart := unlike(given, cases)):
            raise HistoryError(f"the record cannot be the base: {'; '.join(apart)}")
        return cases

    early: list[str] = []

    def interrupted() -> None:
        early.append("ended early: cases that were not decided until then are undecided")

    pairs = measured_commits.compared(measure, arguments, noise, given=given, interrupted=interrupted)
    for line in (*early, *ab.lines(pairs, arguments.slower)):
        _tell(arguments, line)
    if arguments.markdown is not None:
        title = f"{arguments.head} against {arguments.base}"
        arguments.markdown.write_text(ab.markdown(pairs, title), encoding="utf-8")
    _give(arguments, pairs)
    code = ab.exit_code(pairs)
    # A run that ended before it compared anything did not succeed.
    return EXIT_UNDECIDED if early and code == EXIT_MET else code


def _tell(arguments: argparse.Namespace, sentence: str) -> None:
    """Print a line for a reader; with --json beside the output, which is JSON alone."""
    print(sentence, file=sys.stderr if arguments.json else sys.stdout, flush=True)


def _give(arguments: argparse.Namespace, pairs: Sequence[ab.Pair]) -> None:
    """Print and write the comparison as JSON, where the options ask for it."""
    text = json.dumps(ab.as_json(pairs), indent=1)
    if arguments.json:
        print(text)
    if arguments.output is not None:
        arguments.output.write_text(f"{text}\n", encoding="utf-8")


class Progress:
    """Counts the processes of a comparison, and says how long the rest may take."""

    def __init__(self, most: int) -> None:
        self._most, self._begun, self._start = most, 0, time.monotonic()

    def next(self) -> str:
        """ "process 3 of at most 12, at most 4 min left": called when a process begins."""
        done, self._begun = self._begun, self._begun + 1
        if not done:
            return f"process 1 of at most {self._most}"
        left = (time.monotonic() - self._start) / done * (self._most - done)
        shown = f"{left / 60:.0f} min" if left >= 90 else f"{left:.0f} s"
        return f"process {self._begun} of at most {self._most}, at most {shown} left"
