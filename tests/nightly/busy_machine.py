"""Measures the gate of the portable mode on a busy machine, such as a shared runner of a CI service.

    nox -s nightly -- busy_machine

Two busy processes a core run beside it. Functions are compared with themselves: against targets that they meet or miss
by a tenth, where only a false verdict counts, and by a factor of 1.5, where the gate must decide. The time a case is
the product's default. It takes an hour or less; `--alike 50 --start 100` runs 50 gates from number 100 on, and adds
them to those in the record.
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
from typing import Any

from perfsuite.calibrate.cases import CalibrationCase, cases
from perfsuite.calibrate.plan import Plan, open_clock
from perfsuite.clock.processor import pinned_threads
from perfsuite.outcome import Verdict
from perfsuite.settings import Settings
from perfsuite.verdict.noise import Noise, noise_for
from perfsuite.verdict.timing import Timing

from .written import ROOT, update

OUTPUT = ROOT / "records" / "nightly" / "busy-machine.json"
BUSY_A_CORE = 2
ALIKE_TARGETS = {0.9: Verdict.MET, 1.1: Verdict.MISSED}
"""Target -> the only verdict that is not false for functions that are the same."""
FAR_TARGETS = {1 / 1.5: Verdict.MET, 1.5: Verdict.MISSED}
MOST_FALSE, LEAST_DECIDED = 0, 0.95
KINDS, YES = ("right", "undecided", "false"), {True: "yes", False: "no"}
ALIKE, FAR = "a tenth from the target", "a factor of 1.5 from the target"


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


def judged(targets: dict[float, Verdict], start: int, count: int, name: str) -> Counter[str]:
    """The results of gates `start` to `start + count`; the targets and the cases take turns."""
    turn = list(itertools.product(cases("cpu"), targets))
    random.Random(1).shuffle(turn)
    counts: Counter[str] = Counter()
    started = time.monotonic()
    for number in range(count):
        case, target = turn[(start + number) % len(turn)]
        verdict, speed = gate(case, target, seed=start + number)
        kind = "undecided" if verdict is None else "right" if verdict is targets[target] else "false"
        counts[kind] += 1
        if kind == "false" or (kind == "undecided" and targets is FAR_TARGETS):
            print(f"{kind}: {case.name} against {target:.2f}: {verdict}, {speed:.3f}", flush=True)
        spent = time.monotonic() - started
        if number % 5 == 4 or number + 1 == count:
            each = spent / (number + 1)
            print(f"{name}: {number + 1} of {count}, {dict(counts)}, {spent:.0f} s, {each:.1f} s a gate", flush=True)
    return counts


def row(name: str, counts: Counter[str], start: int) -> dict[str, Any]:
    """A row of the record. From a `start` on, the gates that the record has count too."""
    if start:
        there = {one["gates"]: one for one in json.loads(OUTPUT.read_text())["rows"]}
        if name not in there or there[name]["tried"] != start:
            raise SystemExit(f"--start is {start}; {OUTPUT} has {there.get(name, {}).get('tried', 0)} gates {name}")
        counts += Counter({kind: there[name][kind] for kind in KINDS})
    tried = counts.total()
    held = counts["false"] <= MOST_FALSE
    goal = "none false"
    if name == FAR:
        held, goal = held and counts["undecided"] <= (1 - LEAST_DECIDED) * tried, f"{goal}, {LEAST_DECIDED:.0%} decided"
    return {"gates": name, "tried": tried, **{kind: counts[kind] for kind in KINDS}, "goal": goal, "held": YES[held]}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--alike", type=int, default=200, help="gates of functions that are the same (default 200)")
    parser.add_argument("--far", type=int, default=100, help="gates a factor of 1.5 from the target (default 100)")
    parser.add_argument("--start", type=int, default=0, help="number of the first gate (default 0)")
    arguments = parser.parse_args()
    wanted = {ALIKE: (ALIKE_TARGETS, arguments.alike), FAR: (FAR_TARGETS, arguments.far)}
    rows = []
    with busy(BUSY_A_CORE * len(os.sched_getaffinity(0))):
        for name, (targets, count) in wanted.items():
            if count:
                rows.append(row(name, judged(targets, arguments.start, count, name), arguments.start))
                update(OUTPUT, rows[-1:], key="gates")
    print(json.dumps(rows, indent=1))
    return 0 if all(one["held"] == YES[True] for one in rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())
