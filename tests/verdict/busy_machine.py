"""Measures the gate of the portable mode on a busy machine, such as a shared runner of a CI service.

    python tests/verdict/busy_machine.py --output records/cpu/busy_machine.json

Two busy processes a core run beside it. Functions are compared with themselves: against targets that they meet or miss
by a tenth, where only a false verdict counts, and by a factor of 1.5, where the gate must decide. The time a case is
the product's default.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from perfsuite.calibrate.cases import CalibrationCase, cases
from perfsuite.calibrate.plan import Plan, open_clock
from perfsuite.clock.processor import pinned_threads
from perfsuite.outcome import Verdict
from perfsuite.settings import HARNESS, Settings
from perfsuite.verdict.noise import Noise, noise_for
from perfsuite.verdict.timing import Timing

BUSY_A_CORE = 2
ALIKE_TARGETS = {0.9: Verdict.MET, 1.1: Verdict.MISSED}
"""Target -> the only verdict that is not false for functions that are the same."""
FAR_TARGETS = {1 / 1.5: Verdict.MET, 1.5: Verdict.MISSED}
MOST_FALSE, LEAST_DECIDED = 0, 0.95


@contextmanager
def busy(count: int) -> Iterator[None]:
    """Processes that compute all the time."""
    running = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for one in running:
            one.kill()
            one.wait()


def noise(seconds: float) -> Noise:
    """The noise that the gate assumes of a CPU."""
    return noise_for("cpu", seconds, file=None, gpu=None)[0]


def gate(case: CalibrationCase, target: float, seed: int) -> tuple[Verdict | None, float]:
    """The verdict on a function against itself, and the speed that was measured."""
    settings = Settings(device="cpu", seed=seed)
    plan = Plan(device="cpu", process=0, output="", seconds=0.0, gates=[])
    with pinned_threads("cpu"):
        clock = open_clock(plan, case, seed=seed)
        try:
            timed = Timing(clock, target, settings, noise).run()
        finally:
            clock.close()
    return timed.verdict, timed.estimate.speed if timed.estimate else float("nan")


def judged(targets: dict[float, Verdict], count: int, name: str) -> dict[str, object]:
    """`count` gates with the targets and the cases in turn."""
    known = cases("cpu")
    turn = list(itertools.islice(itertools.cycle(itertools.product(known, targets)), count))
    random.Random(1).shuffle(turn)
    counts: Counter[str] = Counter()
    started = time.monotonic()
    for number, (case, target) in enumerate(turn):
        verdict, speed = gate(case, target, seed=number)
        kind = "undecided" if verdict is None else "right" if verdict is targets[target] else "false"
        counts[kind] += 1
        if kind == "false" or (kind == "undecided" and targets is FAR_TARGETS):
            print(f"{kind}: {case.name} against {target:.2f}: {verdict}, {speed:.3f}", flush=True)
        spent = time.monotonic() - started
        if number % 5 == 4 or number + 1 == count:
            each = spent / (number + 1)
            print(f"{name}: {number + 1} of {count}, {dict(counts)}, {spent:.0f} s, {each:.1f} s a gate", flush=True)
    return {"gates": count, **{kind: counts[kind] for kind in ("right", "false", "undecided")}}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--alike", type=int, default=200, help="gates of functions that are the same (default 200)")
    parser.add_argument("--far", type=int, default=100, help="gates a factor of 1.5 from the target (default 100)")
    parser.add_argument("--output", type=Path, help="write the result as JSON")
    arguments = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    with busy(BUSY_A_CORE * cores):
        alike = judged(ALIKE_TARGETS, arguments.alike, "alike")
        far = judged(FAR_TARGETS, arguments.far, "factor 1.5")
    decided = 1.0 - far["undecided"] / max(arguments.far, 1)
    false = alike["false"] + far["false"]
    held = false <= MOST_FALSE and decided >= LEAST_DECIDED
    result = {"harness": HARNESS, "cores": cores, "busy_processes": BUSY_A_CORE * cores, "alike": alike, "far": far}
    result |= {"limits": {"false": MOST_FALSE, "decided": LEAST_DECIDED}, "held": held}
    print(json.dumps(result, indent=1))
    if arguments.output:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text(json.dumps(result, indent=1) + "\n")
    return 0 if held else 1


if __name__ == "__main__":
    raise SystemExit(main())
