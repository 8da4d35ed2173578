"""Measure how often the gate of this card is wrong, and how small a slow-down it finds.

Library kernels are gated against themselves, as they are (every alarm is false) and with device work of known length
planted in one side (every gate without an alarm is a miss), in several processes one after another. The result is
calibration.json: its noise figures widen the gate's intervals, its rates are what the gate may claim.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from perfsuite.cli.errors import UsageError

HELP = "measure the gate's false alarms and misses on this card; writes calibration.json"
EXAMPLE = "example:\n  perfsuite calibrate --output .perfsuite/calibration.json --seconds 330"

NOISE_PROCESSES = 2
NOISE_SETUPS = 7
OTHER_SLOWDOWNS = (0.005, 0.02, 0.05)
STARTING_SECONDS = 6.0
"""What a process takes from its start to its first gate, and to end."""
NOISE_SECONDS = 20.0
"""Time after which a process that measures noise begins no further case."""
GRACE_SECONDS = 10.0
"""Time after its own limit at which a process is ended; the rows that it wrote count."""
POLL_SECONDS = 5.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `perfsuite calibrate`."""
    parser.add_argument("--output", type=Path, default=Path(".perfsuite/calibration.json"), help="where to write")
    parser.add_argument("--seconds", type=float, default=360.0, help="wall time for everything (default 360)")
    parser.add_argument("--processes", type=int, default=4, help="processes that gate (default 4)")
    parser.add_argument("--aa", type=int, default=3000, help="gates of a kernel against itself (default 3000)")
    parser.add_argument("--planted", type=int, default=400, help="gates with a planted 1%% (default 400)")
    parser.add_argument("--others", type=int, default=80, help="gates with each of 0.5, 2 and 5%% (default 80)")
    parser.add_argument(
        "--peers-seconds", type=float, default=20.0, help="time for the peers' timers and rules; 0 leaves them out"
    )
    parser.add_argument("--portable", action="store_true", help="calibrate the host clock on the CPU")


def run(arguments: argparse.Namespace) -> int:
    """Calibrate, print the table, write the file; 21 where there is no device."""
    for name in ("processes", "aa", "planted"):
        if getattr(arguments, name) < 1:
            raise UsageError(f"--{name} is {getattr(arguments, name)}; it must be at least 1")
    if arguments.seconds <= 0:
        raise UsageError(f"--seconds is {arguments.seconds:g}; it must be more than 0")
    from perfsuite.verdict.outcome import EXIT_NOTHING_MEASURED

    device = "cpu" if arguments.portable else "cuda"
    if device == "cuda":
        import torch

        if not torch.cuda.is_available():
            print("no GPU that torch can use: nothing was measured (--portable calibrates the CPU)", file=sys.stderr)
            return EXIT_NOTHING_MEASURED
    with tempfile.TemporaryDirectory(prefix="perfsuite-calibrate-") as folder:
        summary = _calibrate(arguments, device, Path(folder))
    from perfsuite.analyze.calibration_summary import table

    if not summary["aa"]["gates"]:
        print("no gate ended in the time given: nothing was calibrated", file=sys.stderr)
        return EXIT_NOTHING_MEASURED
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(summary, indent=1) + "\n")
    print(table(summary))
    print(f"written to {arguments.output}")
    return 0


def _calibrate(arguments: argparse.Namespace, device: Any, folder: Path) -> dict[str, Any]:
    from perfsuite.analyze.calibration_cases import cases
    from perfsuite.analyze.calibration_summary import noise_file, summarise
    from perfsuite.analyze.calibration_worker import Plan
    from perfsuite.record.fingerprint import fingerprint
    from perfsuite.settings import HARNESS

    started = time.monotonic()
    names = [case.name for case in cases(device)]
    rows_file, noise = folder / "rows.jsonl", folder / "noise.json"
    rows_file.touch()
    facts = {"harness": HARNESS} | fingerprint(Path.cwd(), device=device)
    for process in range(NOISE_PROCESSES):
        plan = Plan(process, device, str(rows_file), NOISE_SECONDS, [], setups=NOISE_SETUPS)
        _process(plan, folder, started)
    noise.write_text(json.dumps(noise_file(read(rows_file), facts)))

    def share(total: int) -> int:
        return math.ceil(total / (len(names) * arguments.processes))

    sizes = [(0.0, arguments.aa), (0.01, arguments.planted)] + [(size, arguments.others) for size in OTHER_SLOWDOWNS]
    gates = [(name, size, share(total)) for size, total in sizes if total > 0 for name in names]
    for process in range(arguments.processes):
        last = process == arguments.processes - 1
        left = arguments.seconds - (time.monotonic() - started) - arguments.peers_seconds
        plan = Plan(
            NOISE_PROCESSES + process,
            device,
            str(rows_file),
            max(1.0, left / (arguments.processes - process) - STARTING_SECONDS),
            gates,
            calibration=str(noise),
            case_count=len(names),
            peers_seconds=arguments.peers_seconds if last else 0.0,
        )
        _process(plan, folder, started)
    return summarise(read(rows_file), facts)


def _process(plan: Any, folder: Path, started: float) -> None:
    """Run one worker, telling how far it has come. What it wrote counts, also where it fails or takes too long."""
    file = folder / f"plan-{plan.process}.json"
    file.write_text(json.dumps(asdict(plan)))
    worker = subprocess.Popen([sys.executable, "-m", "perfsuite.analyze.calibration_worker", str(file)])
    told = begun = time.monotonic()
    while worker.poll() is None:
        time.sleep(0.1)
        if time.monotonic() - begun > plan.seconds + plan.peers_seconds + STARTING_SECONDS + GRACE_SECONDS:
            print(f"process {plan.process} takes too long and is ended", file=sys.stderr)
            worker.kill()
        if time.monotonic() - told > POLL_SECONDS:
            told = time.monotonic()
            _tell(plan, started)
    if worker.returncode != 0:
        print(f"process {plan.process} of the calibration ended with exit code {worker.returncode}", file=sys.stderr)
    _tell(plan, started)


def _tell(plan: Any, started: float) -> None:
    rows = read(Path(plan.output))
    gates = sum(row["kind"] == "gate" for row in rows)
    what = "noise" if plan.setups else "gates"
    print(f"{time.monotonic() - started:6.0f} s  process {plan.process} ({what}), {gates} gates so far", flush=True)


def read(file: Path) -> list[dict[str, Any]]:
    """The rows written so far; a line that is still being written is left out."""
    text = file.read_text()
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
