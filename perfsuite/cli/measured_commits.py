"""Options and helpers of the commands that build commits and measure them: `ab`, `bisect`, `history`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from perfsuite.history import ab
from perfsuite.history.runs import Runner
from perfsuite.outcome import UserError
from perfsuite.verdict.noise import Noise, find_calibration, noise_for

STORE = Path(".perfsuite/ab")
SLOWER, SLOWER_PORTABLE = 0.01, 0.10


def add_measuring(parser: argparse.ArgumentParser) -> None:
    """The options that `ab` and `bisect` share."""
    parser.add_argument("--tests", nargs="+", default=["tests/perf"], help="paths for pytest (default tests/perf)")
    parser.add_argument("--portable", action="store_true", help="the portable kernels, on the CPU")
    parser.add_argument("--slower", type=float, metavar="SHARE", help="share by which a case may get slower (default "
                        f"{SLOWER:g}; {SLOWER_PORTABLE:g} with --portable)")  # fmt: skip
    parser.add_argument("--pairs", type=int, default=6, help="processes a side at most (default 6)")
    parser.add_argument("--seconds", type=float, default=0.25, help="measuring time a case and process (default 0.25)")
    parser.add_argument("--alpha", type=float, default=0.05, help="probability of any wrong verdict (default 0.05)")
    parser.add_argument("--calibration", type=Path, help="calibration.json (default: this card's in "
                        ".perfsuite/ or records/)")  # fmt: skip


def check(arguments: argparse.Namespace) -> None:
    """Fill in the default share; UserError for a number out of range."""
    if arguments.slower is None:
        arguments.slower = SLOWER_PORTABLE if arguments.portable else SLOWER
    for name, low, high in (("slower", 0.0, 1.0), ("seconds", 0.0, 3600.0), ("alpha", 0.0, 0.5)):
        if not low < getattr(arguments, name) < high:
            raise UserError(f"--{name} is {getattr(arguments, name):g}; it must lie between {low:g} and {high:g}")
    if not 1 <= arguments.pairs <= 50:
        raise UserError(f"--pairs is {arguments.pairs}; it must lie between 1 and 50")
    if arguments.calibration is not None and not arguments.calibration.is_file():
        raise UserError(f"--calibration is {str(arguments.calibration)!r}; there is no such file")


class NoiseOfCard:
    """The noise of a call by its length, from the named calibration or from the one found for the card."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._device: Any = "cpu" if arguments.portable else "cuda"
        self._named: Path | None = arguments.calibration
        self._gpu: str | None = None

    def see(self, cases: Sequence[Any]) -> None:
        """Learn from measured cases which card this is."""
        self._gpu = next((case.gpu for case in cases if case.gpu), self._gpu)

    def __call__(self, seconds: float) -> Noise:
        found = self._named or (find_calibration(Path.cwd(), self._gpu) if self._gpu else None)
        return noise_for(self._device, seconds, file=found, gpu=self._gpu)[0]


def compared(measure: ab.Measure, arguments: argparse.Namespace, noise: NoiseOfCard, **more: Any) -> list[ab.Pair]:
    """Compare two sides by the options of `add_measuring`; `more` as in ab.compare."""
    slower, alpha, most = arguments.slower, arguments.alpha, arguments.pairs
    return ab.compare(measure, slower=slower, alpha=alpha, most_pairs=most, noise_of=noise, **more)


def runner_of(arguments: argparse.Namespace) -> Runner:
    """The runner of the suite on a build."""
    return Runner(Path.cwd(), arguments.tests, arguments.portable, arguments.seconds)
