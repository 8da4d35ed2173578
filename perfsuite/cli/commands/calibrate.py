"""Measure how often the gate of this card is wrong, and how small a slow-down it finds.

Library kernels are gated against themselves, in several processes one after another on each card.
Without a change, every alarm is false. With device work of known length planted in one side, every gate
without an alarm is a miss. The noise figures in calibration.json widen the gate's intervals;
its rates are the error rates that the gate may claim.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from perfsuite.calibrate.cases import cases
from perfsuite.calibrate.summary import noise_file, summarise, table
from perfsuite.calibrate.worker import Plan
from perfsuite.cli.places import check_place
from perfsuite.device.cards import usable_devices
from perfsuite.outcome import EXIT_NOTHING_MEASURED, UserError
from perfsuite.record.atomic_write import write_whole
from perfsuite.record.fingerprint import fingerprint
from perfsuite.record.places import make_folder

HELP = "measure the gate's false alarms and misses on this card; writes calibration.json"
EXAMPLE = """examples:
  perfsuite calibrate --output .perfsuite/calibration.json --seconds 330
  perfsuite calibrate --aa 1500 --planted 300 --sharp 200 --others 0 --seconds 600 \\
    --output records/h200/calibration.json
  perfsuite calibrate --isolated --aa 3000 --planted 300 --sharp 0 --others 0 --seconds 3600 \\
    --output records/h200/calibration-isolated.json"""

NOISE_PROCESSES = 3
NOISE_SETUPS = 8
SHARP_SLOWDOWN, OTHER_SLOWDOWNS = 0.005, (0.02, 0.05)
STARTING_SECONDS = 3.0
"""Time of a process before its first gate and after its last; its imports are done before."""
NOISE_SECONDS = 20.0
"""Time after which a process that measures noise begins no further case."""
ISOLATED_TIMES = 3.0
"""Times as long for processes whose sides start processes of their own."""
GRACE_SECONDS = 10.0
"""Extra time after which a process is ended; the rows that it wrote count."""
PEERS_SECONDS = 45.0
"""Extra time for peers, which run in separate processes."""
POLL_SECONDS = 5.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--output", type=Path, default=Path(".perfsuite/calibration.json"), help="where to write")
    parser.add_argument("--seconds", type=float, default=360.0, help="wall time for everything (default 360)")
    parser.add_argument("--processes", type=int, default=4, help="processes that gate (default 4)")
    cards = "cards that are calibrated at once, of those that can be seen; one noise and one rate for all (default 1)"
    parser.add_argument("--jobs", type=int, metavar="N", default=1, help=cards)
    parser.add_argument("--aa", type=int, default=3000, help="gates of a kernel against itself (default 3000)")
    parser.add_argument("--planted", type=int, default=400, help="gates with a planted 1%% (default 400)")
    sharp = "gates with a planted 0.5%%, of calls from 20 us on (default 80)"
    parser.add_argument("--sharp", type=int, default=80, help=sharp)
    parser.add_argument("--others", type=int, default=80, help="gates with each of 2 and 5%% (default 80)")
    peers = "time for the peers' timers and rules, on a card; 0 leaves them out (default 20)"
    parser.add_argument("--peers-seconds", type=float, default=20.0, help=peers)
    isolated = "calibrate gates that time both sides in processes of their own, as --perf-isolate does"
    parser.add_argument("--isolated", action="store_true", help=isolated)
    parser.add_argument("--portable", action="store_true", help="calibrate the host clock on the CPU")
    parser.add_argument("--json", action="store_true", help="print JSON: what is written")


def run(arguments: argparse.Namespace) -> int:
    """Calibrate, print the table, write the file; 21 without a device."""
    for name in ("processes", "jobs", "aa", "planted"):
        if getattr(arguments, name) < 1:
            raise UserError(f"--{name} is {getattr(arguments, name)}; it must be at least 1")
    if not 0.0 < arguments.seconds < math.inf:
        raise UserError(f"--seconds is {arguments.seconds:g}; it must be more than 0")
    for name in ("sharp", "others"):
        if getattr(arguments, name) < 0:
            raise UserError(f"--{name} is {getattr(arguments, name)}; it must be 0 or more")
    if not 0.0 <= arguments.peers_seconds < math.inf:
        raise UserError(f"--peers-seconds is {arguments.peers_seconds:g}; it must be 0 or more")
    check_place("--output", arguments.output, makes_folder=True)
    device = "cpu" if arguments.portable else "cuda"
    selectors: list[str | None] = [None]
    if device == "cuda":
        found = usable_devices(os.environ)
        if found.missing:
            print(f"nothing was measured: {found.missing} (--portable calibrates the CPU)", file=sys.stderr)
            return EXIT_NOTHING_MEASURED
        selectors = [one.selector for one in found.cards]
    if arguments.jobs > len(selectors):
        there = "--portable uses 1 processor" if arguments.portable else f"{len(selectors)} can be seen"
        raise UserError(f"--jobs is {arguments.jobs}; {there}")
    make_folder(arguments.output.parent)
    with tempfile.TemporaryDirectory(prefix="perfsuite-calibrate-") as folder:
        summary = _Calibration(arguments, device, selectors[: arguments.jobs], Path(folder)).run()
    if not summary["aa"]["gates"]:
        print("no gate ended in the time given: nothing was calibrated", file=sys.stderr)
        return EXIT_NOTHING_MEASURED
    if arguments.json:
        print(json.dumps(summary, indent=1))
        return 0
    print(table(summary))
    print(f"written to {arguments.output}")
    return 0


@dataclass(frozen=True)
class _Waiting:
    """A card that is free, and the process that waits for a plan there."""

    selector: str | None
    """Of CUDA_VISIBLE_DEVICES; None for processors."""
    process: subprocess.Popen[str]

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


class _Calibration:
    """One calibration: on each card it runs processes one after another, and keeps the file up to date meanwhile."""

    def __init__(self, arguments: argparse.Namespace, device: Any, selectors: list[str | None], folder: Path) -> None:
        self.arguments, self.device, self.folder = arguments, device, folder
        # Peers time replays of CUDA graphs, which a CPU does not have.
        self.peers_seconds = arguments.peers_seconds if device == "cuda" and not arguments.isolated else 0.0
        self.started = time.monotonic()
        self.rows = folder / "rows.jsonl"
        self.rows.touch()
        self.facts = fingerprint(Path.cwd(), device=device) | {"isolated": arguments.isolated, "cards": len(selectors)}
        self._lock = threading.Lock()
        self.waiting: queue.SimpleQueue[_Waiting] = queue.SimpleQueue()
        """For each card that has no plan, a process that imports its modules and waits for one."""
        for selector in selectors:
            self.waiting.put(_Waiting(selector, self._prepared(selector)))
        self._hands = ThreadPoolExecutor(len(selectors))

    def run(self) -> dict[str, Any]:
        """Measure the noise, then the gates; return the content of the file."""
        arguments, names = self.arguments, [case.name for case in cases(self.device)]
        try:
            seconds = NOISE_SECONDS * (ISOLATED_TIMES if arguments.isolated else 1.0)
            self._all(
                Plan(process, self.device, str(self.rows), seconds, [], setups=NOISE_SETUPS)
                for process in range(NOISE_PROCESSES)
            )
            noise = self.folder / "noise.json"
            noise.write_text(json.dumps(noise_file(read(self.rows), self.facts)))
            sizes = [(0.0, arguments.aa), (0.01, arguments.planted)]
            sizes += [(SHARP_SLOWDOWN, arguments.sharp), *((size, arguments.others) for size in OTHER_SLOWDOWNS)]
            gates = []
            for size, total in sizes:
                # Only a sharp margin lies below half a per cent, so only its cases can find that much.
                able = [case.name for case in cases(self.device) if not 0.0 < size <= case.margin] or names
                each = math.ceil(total / (len(able) * arguments.processes))
                gates += [(name, size, each) for name in able if total > 0]
            self._all(self._gates(gates, str(noise), len(names)))
        finally:
            self._hands.shutdown(cancel_futures=True)
            while not self.waiting.empty():
                self.waiting.get().end()
        return self._write(complete=True)

    def _gates(self, gates: list[tuple[str, float, int]], noise: str, case_count: int) -> Iterator[Plan]:
        """The plans of the processes that gate. A plan is made when its card is free, from the time that is left."""
        arguments = self.arguments
        for process in range(arguments.processes):
            turns = math.ceil((arguments.processes - process) / arguments.jobs)
            left = arguments.seconds - (time.monotonic() - self.started) - self.peers_seconds
            seconds = max(1.0, left / turns - STARTING_SECONDS)
            plan = Plan(NOISE_PROCESSES + process, self.device, str(self.rows), seconds, gates, calibration=noise)
            peers = self.peers_seconds if process == arguments.processes - 1 else 0.0
            yield replace(plan, case_count=case_count, peers_seconds=peers)

    def _all(self, plans: Iterable[Plan]) -> None:
        """Run a process for each plan, as cards are free, and wait for all of them."""
        at_work, left = [], iter(plans)
        while True:
            free = self.waiting.get()
            if (plan := next(left, None)) is None:
                self.waiting.put(free)
                break
            at_work.append(self._hands.submit(self._process, plan, free))
        for one in at_work:
            one.result()

    def _prepared(self, selector: str | None) -> subprocess.Popen[str]:
        """A process that imports its modules, and then waits for its plan without using the card."""
        line = [sys.executable, "-m", "perfsuite.calibrate.worker"]
        environ = os.environ if selector is None else {**os.environ, "CUDA_VISIBLE_DEVICES": selector}
        return subprocess.Popen(line, stdin=subprocess.PIPE, text=True, env=environ)

    def _process(self, plan: Plan, given: _Waiting) -> None:
        """Run one worker and report its progress. Its rows count even if it fails or takes too long."""
        following: subprocess.Popen[str] | None = None
        try:
            plan = replace(plan, isolated=self.arguments.isolated)
            file = self.folder / f"plan-{plan.process}.json"
            file.write_text(json.dumps(asdict(plan)))
            worker = given.process
            assert worker.stdin is not None
            with contextlib.suppress(BrokenPipeError):  # a dead worker is reported below, with its exit code
                worker.stdin.write(f"{file}\n")
                worker.stdin.close()
            reported = begun = time.monotonic()
            limit = plan.seconds + plan.peers_seconds + STARTING_SECONDS
            limit += GRACE_SECONDS * (ISOLATED_TIMES if plan.isolated else 1.0)
            limit += PEERS_SECONDS if plan.peers_seconds else 0.0
            while worker.poll() is None:
                time.sleep(0.1)
                if time.monotonic() - begun > limit:
                    print(f"process {plan.process} takes too long and is ended", file=sys.stderr)
                    worker.kill()
                    worker.wait()
                if following is None and self.device == "cuda":
                    following = self._prepared(given.selector)  # beside a card's gates, not beside those of a CPU
                if time.monotonic() - reported > POLL_SECONDS:
                    reported = time.monotonic()
                    self._tell(plan)
            if worker.returncode != 0:
                ended = f"ended with exit code {worker.returncode}"
                print(f"process {plan.process} of the calibration {ended}", file=sys.stderr)
            self._tell(plan)
        finally:
            self.waiting.put(_Waiting(given.selector, following or self._prepared(given.selector)))

    def _tell(self, plan: Any) -> None:
        summary = self._write(complete=False)
        what = "noise" if plan.setups else "gates"
        alarms, peers = summary["aa"]["false_alarms"], sum(one["aa"]["gates"] for one in summary["peers"])
        print(
            f"{time.monotonic() - self.started:6.0f} s  process {plan.process} ({what}): {summary['aa']['gates']} gates"
            f" of identical code, {alarms} false alarms, {sum(one['trials'] for one in summary['planted'])} planted"
            + (f", {peers} of peers" if peers else ""),
            flush=True,
        )

    def _write(self, *, complete: bool) -> dict[str, Any]:
        """Bring the file up to date. "complete" in it is false until the last process has ended."""
        with self._lock:
            return self._written(complete=complete)

    def _written(self, *, complete: bool) -> dict[str, Any]:
        summary = summarise(read(self.rows), self.facts | {"complete": complete})
        if summary["aa"]["gates"]:
            write_whole(self.arguments.output, json.dumps(summary, indent=1) + "\n")
        return summary


def read(file: Path) -> list[dict[str, Any]]:
    """The rows written so far, without a last line that is still incomplete."""
    text = file.read_text()
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
