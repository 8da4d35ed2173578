"""One process of a calibration: gates of a kernel against itself, with and without planted work, in random order.

Run as `python -m perfsuite.calibrate.worker`, it waits for a line on its standard input: the path of a JSON
file as `Plan` has it. Rows are appended to the file that the plan names, one JSON object a line.
"""

from __future__ import annotations

import contextlib
import json
import math
import random
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from perfsuite.calibrate.cases import CalibrationCase, cases
from perfsuite.clock.base import Sides
from perfsuite.clock.rounds import Round
from perfsuite.outcome import Verdict
from perfsuite.settings import DeviceKind, Settings
from perfsuite.verdict.noise import Noise, noise_for
from perfsuite.verdict.policy import regression_target
from perfsuite.verdict.timing import FIRST_ROUNDS, FIRST_SECONDS, Timing

GATE_SECONDS = 0.5
"""Device time that a gate may take: half of the product's default, so that no undecided case eats up the run."""


FEWEST_SETUPS = 3
"""Set-ups of a case that has been begun when the time for the noise is up."""
FEWEST_ROUNDS = 8
"""Rounds of a set-up that is measured for its noise; more where they are short."""


@dataclass(frozen=True)
class Plan:
    """What one process is to do."""

    process: int
    device: DeviceKind
    output: str
    seconds: float
    """Wall time after which no further gate begins."""
    gates: list[tuple[str, float, int]]
    """Case, planted slow-down (0 for none), and how many such gates."""
    calibration: str | None = None
    """The file whose noise figures the gates use."""
    case_count: int = 10
    peers_seconds: float = 0.0
    """Time for the peers' timers, after the gates."""
    setups: int = 0
    """Above 0: no gates, but so many set-ups a case, whose rounds tell how large the noise is."""


def wait() -> int:
    """Import what takes long, wait for the path of a plan, and carry it out."""
    import torch  # noqa: F401

    path = sys.stdin.readline().strip()
    return carry_out(Path(path)) if path else 0


def carry_out(file: Path) -> int:
    """Carry out the plan in that file."""
    values = json.loads(file.read_text())
    values["gates"] = [tuple(one) for one in values["gates"]]
    plan = Plan(**values)
    with Path(plan.output).open("a") as output:
        if plan.setups:
            _measure_noise(plan, output)
        else:
            _gates(plan, output)
        if plan.peers_seconds:
            from perfsuite.calibrate.peers import run_peers

            run_peers(plan, output)
    return 0


def _measure_noise(plan: Plan, output: TextIO) -> None:
    started = time.monotonic()
    for case in cases(plan.device):
        if time.monotonic() - started > plan.seconds:
            break
        clock = open_clock(plan, case, seed=plan.process)
        rounds = []
        for number in range(plan.setups):
            if number >= FEWEST_SETUPS and time.monotonic() - started > plan.seconds:
                break
            if number:
                clock.setup()
            before = clock.seconds_spent
            rounds += clock.rounds(FEWEST_ROUNDS)
            each = (clock.seconds_spent - before) / FEWEST_ROUNDS
            rounds += clock.rounds(max(0, min(FIRST_ROUNDS, int(FIRST_SECONDS / each)) - FEWEST_ROUNDS))
        clock.close()
        _write(output, _row(plan, case, 0.0, rounds) | {"kind": "noise"})


def _gates(plan: Plan, output: TextIO) -> None:
    known = {case.name: case for case in cases(plan.device)}
    planned = [(name, slowdown) for name, slowdown, count in plan.gates for _ in range(count)]
    random.Random(plan.process).shuffle(planned)
    started = time.monotonic()
    for number, (name, slowdown) in enumerate(planned):
        if time.monotonic() - started > plan.seconds:
            break
        _write(output, gate(plan, known[name], slowdown, seed=plan.process * 100_000 + number))


def gate(plan: Plan, case: CalibrationCase, slowdown: float, *, seed: int) -> dict[str, Any]:
    """One regression gate of the kernel, slowed by `slowdown`, against itself: what the product decides, timed."""
    settings = Settings(
        device=plan.device,
        seconds=GATE_SECONDS,
        seed=seed,
        cases=plan.case_count,
        calibration=Path(plan.calibration) if plan.calibration else None,
    )
    begun = time.perf_counter()
    clock = open_clock(plan, case, seed=seed, slowdown=slowdown)
    try:
        timed = Timing(clock, regression_target(), settings, lambda seconds: noise_from(settings, seconds)).run()
        return _row(plan, case, slowdown, timed.kept) | {
            "kind": "gate",
            "alarm": timed.verdict is Verdict.MISSED,
            "undecided": timed.verdict is None,
            "speed": timed.estimate.speed if timed.estimate else None,
            "gpu_seconds": clock.seconds_spent,
            "wall_seconds": time.perf_counter() - begun,
            "looks": timed.looks,
            "retries": timed.retries,
        }
    finally:
        clock.close()


def open_clock(plan: Plan, case: CalibrationCase, *, seed: int, slowdown: float = 0.0) -> Any:
    """The clock that the product would take, set up over the kernel on both sides, with work planted in one."""
    import torch

    generator = torch.Generator(device=plan.device).manual_seed(seed)
    sides = Sides(case.function, case.function, lambda: case.problem.inputs(generator))
    clock: Any
    if plan.device == "cpu":
        from perfsuite.clock.host import HostClock

        if slowdown:
            sides = Sides(slowed(case.function, slowdown), case.function, sides.make_inputs)
        clock = HostClock(sides, seed=seed)
    else:
        from perfsuite.calibrate.planted import PlantedClock

        seconds = call_seconds(plan, case) if slowdown else 0.0
        clock = PlantedClock(sides, seed=seed, slowdown=slowdown, call_seconds=seconds)
    clock.setup()
    return clock


_CALL_SECONDS: dict[str, float] = {}


def call_seconds(plan: Plan, case: CalibrationCase) -> float:
    """Seconds of a call of the case's kernel, measured once a process."""
    if case.name not in _CALL_SECONDS:
        clock = open_clock(plan, case, seed=plan.process)
        _CALL_SECONDS[case.name] = statistics.median(one.rival_seconds for one in clock.rounds(10))
        clock.close()
    return _CALL_SECONDS[case.name]


def slowed(function: Any, slowdown: float) -> Any:
    """The function, followed by a wait of `slowdown` of its own time: the planted work of a CPU."""

    def call(*args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        output = function(*args, **kwargs)
        end = time.perf_counter()
        end += slowdown * (end - start)
        while time.perf_counter() < end:
            pass
        return output

    return call


def noise_from(settings: Settings, seconds: float) -> Noise:
    """The noise that the product would reckon with."""
    return noise_for(settings.device, seconds, file=settings.calibration, gpu=None, alike=True)[0]


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


def _write(output: TextIO, row: dict[str, Any]) -> None:
    output.write(json.dumps(row) + "\n")
    output.flush()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C reaches all processes, and the command tells of it
        sys.exit(wait())
    sys.exit(1)
