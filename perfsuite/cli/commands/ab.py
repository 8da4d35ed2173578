"""Build two commits, run the gates on both in alternated processes, and say which cases got slower.

The suite that measures is the checkout's own; the kernels are those of the commits. Each process gives one number a
case, its speed against the library, and the verdict rests on these numbers and on the noise of the card's calibration.
BASE may also be a record, where the commit cannot be built any more; a folder with a project in it (an unpacked
archive, say) may stand for either commit.
"""

from __future__ import annotations

import argparse
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from perfsuite.cli.errors import UsageError
from perfsuite.cli.places import check_place
from perfsuite.history.commits import HistoryError
from perfsuite.outcome import EXIT_MET, EXIT_UNDECIDED
from perfsuite.verdict.noise import Noise

HELP = "two commits side by side: what got slower; exit 1 on a regression"
EXAMPLE = """example:
  perfsuite ab origin/main
  perfsuite ab v1.0 HEAD --tests tests/perf/test_gemm.py
  perfsuite ab records/h200/gates.jsonl HEAD
  perfsuite ab HEAD~3 --portable

exit codes: 0 no case got slower, 1 one did or is wrong, 2 bad input, 20 undecided
Ctrl-C and SIGTERM end the measuring; what was decided until then is told."""

STORE = Path(".perfsuite/ab")
SLOWER, SLOWER_PORTABLE = 0.01, 0.10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("base", metavar="BASE", help="a commit, a folder, or a record of one")
    parser.add_argument("head", nargs="?", default="HEAD", metavar="HEAD", help="a commit, or a folder (default HEAD)")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table as markdown, for a CI page")
    add_measuring(parser)


def add_measuring(parser: argparse.ArgumentParser) -> None:
    """The arguments on how it is measured, which `bisect` shares."""
    parser.add_argument("--tests", nargs="+", default=["tests/perf"], help="what pytest runs (default tests/perf)")
    parser.add_argument("--portable", action="store_true", help="the portable kernels, on the CPU")
    parser.add_argument("--slower", type=float, metavar="SHARE", help="share by which a case may get slower (default "
                        f"{SLOWER:g}; {SLOWER_PORTABLE:g} with --portable)")  # fmt: skip
    parser.add_argument("--pairs", type=int, default=6, help="processes a side at most (default 6)")
    parser.add_argument("--seconds", type=float, default=0.25, help="measuring time a case and process (default 0.25)")
    parser.add_argument("--alpha", type=float, default=0.05, help="probability of any wrong verdict (default 0.05)")
    parser.add_argument("--calibration", type=Path, help="calibration.json (default: this card's in "
                        ".perfsuite/ or records/)")  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """Compare; HistoryError and UsageError become exit code 2."""
    check(arguments)
    check_place("--markdown", arguments.markdown, replaced=False)
    try:
        return _run(arguments)
    except HistoryError as error:
        raise UsageError(str(error)) from None


def check(arguments: argparse.Namespace) -> None:
    """UsageError where a number is outside what is allowed; puts in the default share."""
    if arguments.slower is None:
        arguments.slower = SLOWER_PORTABLE if arguments.portable else SLOWER
    for name, low, high in (("slower", 0.0, 1.0), ("seconds", 0.0, 3600.0), ("alpha", 0.0, 0.5)):
        if not low < getattr(arguments, name) < high:
            raise UsageError(f"--{name} is {getattr(arguments, name):g}; it must lie between {low:g} and {high:g}")
    if not 1 <= arguments.pairs <= 50:
        raise UsageError(f"--pairs is {arguments.pairs}; it must lie between 1 and 50")
    if arguments.calibration is not None and not arguments.calibration.is_file():
        raise UsageError(f"--calibration is {str(arguments.calibration)!r}; there is no such file")


class NoiseOfCard:
    """The noise to reckon with, by the length of a call: of the calibration that is named, or found for the card."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._device: Any = "cpu" if arguments.portable else "cuda"
        self._named: Path | None = arguments.calibration
        self._gpu: str | None = None

    def see(self, cases: Sequence[Any]) -> None:
        """Learn from measured cases which card this is."""
        self._gpu = next((case["gpu"] for case in cases if case.get("gpu")), self._gpu)

    def __call__(self, seconds: float) -> Noise:
        from perfsuite.verdict.noise import find_calibration, noise_for

        found = self._named or (find_calibration(Path.cwd(), self._gpu) if self._gpu else None)
        return noise_for(self._device, seconds, file=found, gpu=self._gpu)[0]


def runner_of(arguments: argparse.Namespace) -> Any:
    """What runs the suite on a build."""
    from perfsuite.history.runs import Runner

    return Runner(Path.cwd(), arguments.tests, arguments.portable, arguments.seconds)


def _run(arguments: argparse.Namespace) -> int:
    from perfsuite.history import ab
    from perfsuite.history.builds import build_all, source_of
    from perfsuite.record.store import read_record

    root = Path.cwd()
    record = Path(arguments.base)
    given = read_record(record) if record.is_file() else []
    names = {ab.HEAD: arguments.head} if given else {ab.BASE: arguments.base, ab.HEAD: arguments.head}
    sources = {side: source_of(root, name) for side, name in names.items()}
    tell_of_changes(root, arguments.head)
    for side, source in sources.items():
        print(f"{side}: {names[side]} is {source.short}, building", flush=True)
    builds = dict(zip(sources, build_all(list(sources.values()), root / STORE), strict=True))
    runner, noise = runner_of(arguments), NoiseOfCard(arguments)

    def measure(side: str, tests: Sequence[str]) -> Sequence[Any]:
        print(f"{side}: a process" + (f" for {len(tests)} undecided tests" if tests else ""), flush=True)
        cases = runner.run(builds[side], sources[side].commit, tests)
        noise.see(cases)
        if given:
            _same_card(given, cases)
        return cases

    early: list[str] = []
    with sigterm_as_interrupt():
        pairs = ab.compare(
            measure,
            slower=arguments.slower,
            alpha=arguments.alpha,
            most_pairs=arguments.pairs,
            noise_of=noise,
            given=given,
            interrupted=lambda: early.append("ended early: what was not decided until then is undecided"),
        )
    print("\n".join(early), end="\n" if early else "")
    print("\n".join(ab.lines(pairs)))
    if arguments.markdown is not None:
        title = f"{arguments.head} against {arguments.base}"
        arguments.markdown.write_text(ab.markdown(pairs, title), encoding="utf-8")
    code = ab.exit_code(pairs)
    # An end before anything was compared is no success.
    return EXIT_UNDECIDED if early and code == EXIT_MET else code


@contextmanager
def sigterm_as_interrupt() -> Iterator[None]:
    """Make SIGTERM, which CI sends where the time is up, a KeyboardInterrupt, as Ctrl-C is.

    Left alone outside the main thread, where Python allows no handler.
    """

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def tell_of_changes(root: Path, head: str) -> None:
    """Say that what is not committed is not measured, where HEAD stands for the checkout and the checkout differs."""
    from perfsuite.history.commits import git

    if head == "HEAD" and git(root, "status", "--porcelain", "--untracked-files=no"):
        print("changes that are not committed are not part of what is compared", flush=True)


def _same_card(base: Sequence[Any], head: Sequence[Any]) -> None:
    from perfsuite.report.difference import unlike

    if apart := unlike(base, head):
        raise HistoryError(f"the record cannot be the base: {'; '.join(apart)}")
