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

NOISE_PROCESSES = 3
NOISE_SETUPS = 8
OTHER_SLOWDOWNS = (0.005, 0.02, 0.05)
PEERS_SHARE = 0.2
"""Share of the time that the peers' timers get."""
POLL_SECONDS = 5.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `perfsuite calibrate`."""
    parser.add_argument("--output", type=Path, default=Path(".perfsuite/calibration.json"), help="where to write")
    parser.add_argument("--seconds", type=float, default=330.0, help="wall time for everything (default 330)")
    parser.add_argument("--processes", type=int, default=5, help="processes that gate (default 5)")
    parser.add_argument("--aa", type=int, default=3200, help="gates of a kernel against itself (default 3200)")
    parser.add_argument("--planted", type=int, default=400, help="gates with a planted 1%% (default 400)")
    parser.add_argument("--others", type=int, default=100, help="gates with each of 0.5, 2 and 5%% (default 100)")
    parser.add_argument("--no-peers", action="store_true", help="leave the peers' timers and rules out")
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

    print(table(summary))
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(summary, indent=1) + "\n")
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
        _process(Plan(process, device, str(rows_file), 0.0, [], setups=NOISE_SETUPS), folder, started)
    noise.write_text(json.dumps(noise_file(read(rows_file), facts)))

    def share(total: int) -> int:
        return math.ceil(total / (len(names) * arguments.processes))

    gates = [(name, 0.0, share(arguments.aa)) for name in names]
    gates += [(name, 0.01, share(arguments.planted)) for name in names]
    gates += [(name, size, share(arguments.others)) for size in OTHER_SLOWDOWNS if arguments.others for name in names]
    for process in range(arguments.processes):
        left = arguments.seconds - (time.monotonic() - started)
        if not arguments.no_peers:
            left -= PEERS_SHARE * arguments.seconds
        plan = Plan(
            NOISE_PROCESSES + process,
            device,
            str(rows_file),
            left / (arguments.processes - process) - 8.0,
            gates,
            calibration=str(noise),
            case_count=len(names),
        )
        _process(plan, folder, started)
    if not arguments.no_peers:
        left = arguments.seconds - (time.monotonic() - started)
        plan = Plan(NOISE_PROCESSES + arguments.processes, device, str(rows_file), left - 8.0, [], peers=True)
        _process(plan, folder, started)
    return summarise(read(rows_file), facts)


def _process(plan: Any, folder: Path, started: float) -> None:
    """Run one worker, telling how far it has come."""
    file = folder / f"plan-{plan.process}.json"
    file.write_text(json.dumps(asdict(plan)))
    worker = subprocess.Popen([sys.executable, "-m", "perfsuite.analyze.calibration_worker", str(file)])
    told = time.monotonic()
    while worker.poll() is None:
        time.sleep(0.1)
        if time.monotonic() - told > POLL_SECONDS:
            told = time.monotonic()
            _tell(plan, started)
    if worker.returncode != 0:
        raise UsageError(f"process {plan.process} of the calibration ended with exit code {worker.returncode}")
    _tell(plan, started)


def _tell(plan: Any, started: float) -> None:
    rows = read(Path(plan.output))
    gates = sum(row["kind"] == "gate" for row in rows)
    what = "noise" if plan.setups else "peers" if plan.peers else "gates"
    print(f"{time.monotonic() - started:6.0f} s  process {plan.process} ({what}), {gates} gates so far", flush=True)


def read(file: Path) -> list[dict[str, Any]]:
    """The rows written so far; a line that is still being written is left out."""
    text = file.read_text()
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
