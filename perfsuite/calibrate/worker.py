"""One process of a calibration: gates of a kernel against itself, with and without planted work, in random order.

The process reads the path of a `Plan` in JSON from its standard input, and appends JSON lines to the plan's file.
"""

from __future__ import annotations

import contextlib
import math
import random
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from perfsuite.calibrate.cases import CalibrationCase, cases
from perfsuite.calibrate.peers import run_peers
from perfsuite.calibrate.plan import Plan, open_clock, write_row
from perfsuite.clock.processor import pinned_threads
from perfsuite.clock.rounds import Round
from perfsuite.device import turns
from perfsuite.isolate import nursery
from perfsuite.outcome import Verdict
from perfsuite.settings import Settings
from perfsuite.verdict.noise import Noise, noise_for
from perfsuite.verdict.policy import regression_target
from perfsuite.verdict.timing import FIRST_ROUNDS, FIRST_SECONDS, Timing

GATES_A_PAIR = 20
"""Isolated gates for which one pair of processes is used: to start them takes as long as to gate."""
PAIRS_A_PROCESS = 10_000
"""More pairs than one process of a calibration starts."""
GATE_SECONDS = 0.5
"""Device time of a gate: half of the product's default, so that no undecided case takes most of the run."""
FEWEST_SETUPS = 3
"""Set-ups of a case that has begun when the time for the noise is up."""
RESPONSE_SETUPS = 3
"""Set-ups of a planted slow-down by which it is measured."""
FEWEST_ROUNDS = 8
"""Rounds of a set-up that is measured for its noise. Short rounds are more."""


def wait() -> None:
    """Import torch, which takes long, wait for the path of a plan, and carry it out.

    Isolated, the capability of the card is named, such as 90. Then the processes from which those of both sides come
    start here as well: they import torch too.
    """
    if len(sys.argv) > 1:
        nursery.prepare(int(sys.argv[1]))
    import torch  # noqa: F401

    if path := sys.stdin.readline().strip():
        carry_out(Path(path))


def carry_out(file: Path) -> None:
    """Carry out the plan in that file."""
    plan = Plan.read(file)
    if plan.lock is not None:
        turns.share(Path(plan.lock), plan.beside, nursery.contexts, in_process=not plan.isolated)
    # Before the first process starts, so that all have the same number of threads, as in an isolated case.
    pinned = pinned_threads(plan.device) if plan.isolated else contextlib.nullcontext()
    with pinned, Path(plan.output).open("a") as output:
        if plan.setups:
            _measure_noise(plan, output)
        else:
            _gates(plan, output)
        if plan.peers_seconds:
            run_peers(plan, output)


def _measure_noise(plan: Plan, output: TextIO) -> None:
    """The noise of all cases, then planted slow-downs in the second half of the time."""
    started, known = time.monotonic(), {case.name: case for case in cases(plan.device)}
    until = started + (0.5 if plan.responses else 1.0) * plan.seconds
    for case in known.values():
        if time.monotonic() > until:
            break
        rounds = _rounds_of(plan, case, 0.0, plan.setups, until)
        write_row(output, _row(plan, case, 0.0, rounds) | {"kind": "noise"})
    for name, slowdown in plan.responses:
        if time.monotonic() > started + plan.seconds:
            break
        rounds = _rounds_of(plan, known[name], slowdown, RESPONSE_SETUPS, started + plan.seconds)
        write_row(output, _row(plan, known[name], slowdown, rounds) | {"kind": "response"})


def _rounds_of(plan: Plan, case: CalibrationCase, slowdown: float, setups: int, until: float) -> list[Round]:
    """The rounds of so many set-ups of a case, and of fewer behind `until`."""
    with turns.working():
        clock = open_clock(plan, case, seed=plan.seed + plan.process, slowdown=slowdown)
    rounds = []
    for number in range(setups):
        if number >= FEWEST_SETUPS and time.monotonic() > until:
            break
        with turns.working():
            if number:
                clock.setup()
            rounds += _rounds_of_a_look(clock)
    with turns.working():
        clock.close()
    return rounds


def _rounds_of_a_look(clock: Any) -> list[Round]:
    before = clock.seconds_spent
    rounds: list[Round] = clock.rounds(FEWEST_ROUNDS)
    each = (clock.seconds_spent - before) / FEWEST_ROUNDS
    more = min(FIRST_ROUNDS, int(FIRST_SECONDS / each)) - FEWEST_ROUNDS
    return rounds + (clock.rounds(more) if more > 0 else [])


def _gates(plan: Plan, output: TextIO) -> None:
    """Gates in random order. Isolated, some gates of a case and a size follow one another, in one pair of processes."""
    known = {case.name: case for case in cases(plan.device)}
    most = GATES_A_PAIR if plan.isolated else 1
    planned = [
        (name, slowdown, min(most, count - done))
        for name, slowdown, count in plan.gates
        for done in range(0, count, most)
    ]
    random.Random(plan.seed + plan.process).shuffle(planned)
    started = time.monotonic()
    for number, (name, slowdown, count) in enumerate(planned):
        for row in gates(plan, known[name], slowdown, number, count, until=started + plan.seconds):
            write_row(output, row)


def gates(
    plan: Plan, case: CalibrationCase, slowdown: float, number: int, count: int, *, until: float
) -> Iterator[dict[str, Any]]:
    """`count` gates by one clock: the kernel slowed by `slowdown` against the kernel itself.

    Before each gate the clock is set up anew: other values, other memory, other captures, other measurements of costs.
    number: of this clock among those of the plan. No gate begins after `until`.
    """
    seed = plan.seed + plan.process * 100_000 + number
    process = plan.process * PAIRS_A_PROCESS + number if plan.isolated else plan.process
    clock = None
    try:
        for _ in range(count):
            if time.monotonic() > until:
                break
            begun, before = time.perf_counter(), 0.0
            with turns.working():
                if clock is None:
                    clock = open_clock(plan, case, seed=seed, slowdown=slowdown)
                else:
                    before = clock.seconds_spent
                    clock.renew()
                    clock.setup()
                row = gate(plan, case, slowdown, clock)
            spent = {"gpu_seconds": clock.seconds_spent - before, "wall_seconds": time.perf_counter() - begun}
            yield row | {"process": process} | spent
    finally:
        if clock is not None:
            with turns.working():
                clock.close()


def gate(plan: Plan, case: CalibrationCase, slowdown: float, clock: Any) -> dict[str, Any]:
    """The product's decision, with its times, on a clock that has been set up once."""
    settings = Settings(
        device=plan.device,
        seconds=GATE_SECONDS,
        cases=plan.case_count,
        calibration=Path(plan.calibration) if plan.calibration else None,
    )

    def noise_of(seconds: float) -> Noise:
        return noise_for(plan.device, seconds, file=settings.calibration, gpu=None, alike=True)[0]

    timed = Timing(clock, regression_target(case.margin), settings, noise_of).run()
    return _row(plan, case, slowdown, timed.kept) | {
        "kind": "gate",
        "margin": case.margin,
        "alarm": timed.verdict is Verdict.MISSED,
        "undecided": timed.verdict is None,
        "speed": timed.estimate.speed if timed.estimate else None,
        "looks": timed.looks,
        "retries": timed.retries,
    }


def _row(plan: Plan, case: CalibrationCase, slowdown: float, rounds: list[Round]) -> dict[str, Any]:
    return {
        "process": plan.process,
        "case": case.name,
        "slowdown": slowdown,
        "seconds": statistics.median(one.rival_seconds for one in rounds) if rounds else None,
        "setups": list(_by_setup(rounds)),
    }


def _by_setup(rounds: list[Round]) -> Iterator[tuple[float, float, int]]:
    """(median, standard deviation, count) of the log ratios of each set-up."""
    for setup in dict.fromkeys(one.setup for one in rounds):
        logs = [math.log(one.speed) for one in rounds if one.setup == setup]
        if len(logs) > 1:
            yield statistics.median(logs), statistics.stdev(logs), len(logs)


if __name__ == "__main__":
    try:
        wait()
    except KeyboardInterrupt:  # Ctrl-C reaches all processes, and the command reports it
        sys.exit(1)
