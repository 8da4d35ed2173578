"""Find the commit in which a case got slower, between a commit known as good and one known as bad.

Both ends are compared first. Then the search compares commits with GOOD, as `perfsuite ab`
does. Commits that do not build are skipped, and listed if one of them may be the first bad one.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from perfsuite.cli import measured_commits
from perfsuite.history import ab, builds
from perfsuite.history.bisect import search
from perfsuite.history.children import signals_as_interrupts
from perfsuite.history.commits import HistoryError, between, full_commit, git
from perfsuite.outcome import EXIT_MISSED, EXIT_UNDECIDED, Verdict

HELP = "find the commit in which a case got slower"
EXAMPLE = """example:
  perfsuite bisect '*gemm 1024x1024x1024*' v1.0 HEAD
  perfsuite bisect '*flash_attention*2x8x512x64*' HEAD~20 HEAD --portable

exit codes: 0 found, 1 GOOD and BAD do not differ, 2 bad input, 20 undecided"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("case", metavar="CASE", help="the case's name in the record, or a pattern for one or more")
    parser.add_argument("good", metavar="GOOD", help="a commit before it got slower")
    parser.add_argument("bad", metavar="BAD", help="a commit after it")
    measured_commits.add_measuring(parser)
    parser.add_argument("--json", action="store_true", help="print JSON: the end, the suspects, each verdict")


def run(arguments: argparse.Namespace) -> int:
    """Search, and print each commit that is compared."""
    # SIGTERM is what CI sends at its time limit, SIGHUP what a closed terminal sends.
    with signals_as_interrupts():
        return _checked(arguments)


def _checked(arguments: argparse.Namespace) -> int:
    measured_commits.check(arguments)
    root = Path.cwd()
    good, bad = full_commit(root, arguments.good), full_commit(root, arguments.bad)
    commits = between(root, good, bad)
    if not commits:
        raise HistoryError(f"{arguments.good} and {arguments.bad} are the same commit: there is nothing to search")
    judge = _Judge(arguments, root, good)
    last = judge(commits[-1])
    if last is not False:
        end = "undecided" if last is None else "no difference between GOOD and BAD"
        _tell(arguments, judge, end, [], f"{end}: {judge.told}")
        return EXIT_UNDECIDED if last is None else EXIT_MISSED
    suspects = search(commits, judge).suspects
    if len(suspects) == 1:
        _tell(
            arguments,
            judge,
            "found",
            suspects,
            f"{suspects[0]} is the first commit in which {arguments.case} is slower",
        )
        return 0
    several = f"one of these {len(suspects)} commits: all but the last do not build or stay undecided"
    _tell(arguments, judge, "several suspects", suspects, several)
    return EXIT_UNDECIDED


def _tell(arguments: argparse.Namespace, judge: _Judge, end: str, suspects: Sequence[str], sentence: str) -> None:
    """Print how the search ended, with the suspects."""
    if arguments.json:
        commits = {commit: _WORDS[verdict] for commit, verdict in judge.known.items()}
        print(
            json.dumps({"end": end, "case": arguments.case, "suspects": list(suspects), "commits": commits}, indent=1)
        )
        return
    for commit in suspects:
        print(git(judge.root, "show", "-s", "--format=%h %an, %cs: %s", commit))
    print(sentence)


_WORDS = {True: "good", False: "bad", None: "undecided"}


class _Judge:
    """Compares a commit with GOOD: True if the case is as fast, False if it is slower, None if that is undecided."""

    def __init__(self, arguments: argparse.Namespace, root: Path, good: str) -> None:
        self.arguments, self.root, self.good = arguments, root, good
        self.base = builds.build(builds.Source(root, good), root / measured_commits.STORE)
        self.known: dict[str, bool | None] = {}
        self.told = ""

    def __call__(self, commit: str) -> bool | None:
        if commit not in self.known:
            self.known[commit] = self._judge(commit)
            stream = sys.stderr if self.arguments.json else sys.stdout
            print(f"{commit[:12]}: {_WORDS[self.known[commit]]}; {self.told}", file=stream, flush=True)
        return self.known[commit]

    def _judge(self, commit: str) -> bool | None:
        try:
            head = builds.build(builds.Source(self.root, commit), self.root / measured_commits.STORE)
        except builds.BuildError as error:
            self.told = str(error)
            return None
        runner, wanted = measured_commits.runner_of(self.arguments), self.arguments.case
        noise = measured_commits.NoiseOfCard(self.arguments)
        sides = {ab.BASE: (self.base, self.good), ab.HEAD: (head, commit)}
        tests: list[str] = []

        def measure(side: str, undecided: Sequence[str]) -> Sequence[Any]:
            cases = [case for case in runner.run(*sides[side], undecided or tests) if fnmatchcase(case.case, wanted)]
            if not cases:
                raise HistoryError(f"no case is called {wanted!r} at {sides[side][1][:12]}")
            noise.see(cases)
            tests[:] = sorted({str(case.test) for case in cases})
            return cases

        pairs = measured_commits.compared(measure, self.arguments, noise)
        self.told = pairs[0].sentence
        if any(pair.verdict in (Verdict.MISSED, Verdict.WRONG) for pair in pairs):
            return False
        return None if any(pair.verdict is Verdict.UNDECIDED for pair in pairs) else True
