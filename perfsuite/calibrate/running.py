"""Runs the processes of a calibration: on each card one after another, noise first, then gates."""

from __future__ import annotations

import contextlib
import json
import math
import os
import queue
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from perfsuite.calibrate.cases import cases
from perfsuite.calibrate.parts import Part, head, missing, read_rows, require_alike
from perfsuite.calibrate.plan import Plan
from perfsuite.calibrate.summary import noise_cases, summarise
from perfsuite.outcome import UserError
from perfsuite.record.atomic_write import write_whole
from perfsuite.record.fingerprint import fingerprint
from perfsuite.settings import DeviceKind

NOISE_PROCESSES = 3
NOISE_SETUPS, ISOLATED_NOISE_SETUPS = 8, 5
STARTING_SECONDS = 3.0
"""Time of a process before its first gate and after its last; its imports are done before."""
NOISE_SECONDS, NOISE_SHARE = 20.0, 0.5
"""Time after which a process that measures noise begins no further case, as much again for planted slow-downs, and the
most of a run's time for both."""
ISOLATED_TIMES = 3.0
"""Times as long for processes whose sides start processes of their own."""
GRACE_SECONDS = 10.0
"""Extra time after which a process is ended; the rows that it wrote count."""
PEERS_SECONDS = 45.0
"""Extra time for peers, which run in separate processes."""
POLL_SECONDS = 5.0


@dataclass(frozen=True, kw_only=True)
class Order:
    """The gates that a run is to measure, and its limits."""

    device: DeviceKind
    gates: Mapping[float, int]
    """Planted slow-down (0 for none) -> gates of the whole calibration."""
    seconds: float
    """Wall time for everything."""
    processes: int
    peers_seconds: float
    isolated: bool
    beside: int = 1
    """Isolated: processes on each card, which time in turns."""
    output: Path | None
    """The calibration.json that is kept up to date; None for a part."""
    part: Path | None
    """The file of the part; None for a whole calibration."""
    after: Sequence[Part] = ()
    """Earlier parts: their noise figures are used, and their gates are not measured again."""


@dataclass(frozen=True)
class _Waiting:
    """A card that is free, and the process that waits for a plan there."""

    selector: str | None
    """Of CUDA_VISIBLE_DEVICES; None for processors."""
    process: subprocess.Popen[str]

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


class Calibration:
    """One run: on each card processes one after another. The file is kept up to date meanwhile."""

    def __init__(self, order: Order, selectors: Sequence[str | None], folder: Path) -> None:
        """selectors: of the cards, for CUDA_VISIBLE_DEVICES; None for processors. UserError for parts of another kind.

        folder: for files of the run itself.
        """
        self.order, self.folder = order, folder
        # Peers time replays of CUDA graphs, which a CPU does not have.
        self.peers_seconds = order.peers_seconds if order.device == "cuda" and not order.isolated else 0.0
        self.started = time.monotonic()
        self.facts = fingerprint(Path.cwd(), device=order.device)
        self.facts |= {"isolated": order.isolated, "cards": len(selectors), "beside": order.beside}
        if order.after:
            require_alike(order.after, self.facts)
        self.wanted = self._wanted()
        if not any(self.wanted.values()):
            raise UserError("the earlier parts have all gates that are asked for; join them (--join)")
        self.run_number = secrets.randbits(32)
        self.rows = order.part or folder / "rows.jsonl"
        self.known_noise = order.after[0].noise if order.after else None
        first = head(self.run_number, self.facts, order.gates, self.known_noise)
        with self.rows.open("x") as rows:
            rows.write(first)
        self._lock = threading.Lock()
        self._jobs = order.beside * len(selectors)
        self.waiting: queue.SimpleQueue[_Waiting] = queue.SimpleQueue()
        """For each card that has no plan, a process that imports its modules and waits for one."""
        for selector in order.beside * list(selectors):
            self.waiting.put(_Waiting(selector, self._prepared(selector)))
        self._hands = ThreadPoolExecutor(self._jobs)

    def _wanted(self) -> dict[tuple[str, float], int]:
        """(case, planted slow-down) -> gates of this run."""
        known = cases(self.order.device)
        found: dict[tuple[str, float], int] = {}
        for size, total in self.order.gates.items():
            # Only a sharp margin lies below half a per cent, so only its cases can find that much.
            able = [case.name for case in known if not 0.0 < size <= case.margin] or [case.name for case in known]
            found |= {(name, size): math.ceil(total / len(able)) for name in able}
        return missing(self.order.after, found)

    def run(self) -> dict[str, Any]:
        """Measure the noise, unless it is known, then the gates; return what they showed."""
        try:
            if self.known_noise is None:
                # On processors planted work lasts as long as it should: each call is timed.
                planted = [one for one in self.wanted if one[1]] if self.order.device == "cuda" else []
                seconds = NOISE_SECONDS * (ISOLATED_TIMES if self.order.isolated else 1.0) * (2 if planted else 1)
                seconds = min(seconds, NOISE_SHARE * self.order.seconds / NOISE_PROCESSES)
                setups = ISOLATED_NOISE_SETUPS if self.order.isolated else NOISE_SETUPS
                self._all(
                    Plan(process, self.order.device, str(self.rows), seconds, [], setups=setups, responses=planted)
                    for process in range(NOISE_PROCESSES)
                )
            noise = self.folder / "noise.json"
            found = noise_cases(self._read()) if self.known_noise is None else self.known_noise
            noise.write_text(json.dumps({**self.facts, "cases": found}))
            self._all(self._gates(str(noise)))
        finally:
            self._hands.shutdown(cancel_futures=True)
            while not self.waiting.empty():
                self.waiting.get().end()
        return self._write(complete=True)

    def _gates(self, noise: str) -> Iterator[Plan]:
        """The plans of the processes that gate. A plan is made when its card is free, from the time that is left."""
        order = self.order
        gates = [
            (name, size, math.ceil(count / order.processes)) for (name, size), count in self.wanted.items() if count
        ]
        for process in range(order.processes):
            turns = math.ceil((order.processes - process) / self._jobs)
            left = order.seconds - (time.monotonic() - self.started) - self.peers_seconds
            seconds = max(1.0, left / turns - STARTING_SECONDS)
            plan = Plan(NOISE_PROCESSES + process, order.device, str(self.rows), seconds, gates, calibration=noise)
            peers = self.peers_seconds if process == order.processes - 1 else 0.0
            yield replace(plan, case_count=len(cases(order.device)), peers_seconds=peers)

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
        if self.order.isolated and self.order.device == "cuda":
            line.append(str(self.facts["capability"]).replace(".", ""))
        environ = dict(os.environ)
        if selector is not None:  # a number is NVML's, which CUDA's is only in this order
            environ = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", **environ, "CUDA_VISIBLE_DEVICES": selector}
        return subprocess.Popen(line, stdin=subprocess.PIPE, text=True, env=environ)

    def _process(self, plan: Plan, given: _Waiting) -> None:
        """Run one worker and report its progress. Its rows count even if it fails or takes too long."""
        following: subprocess.Popen[str] | None = None
        try:
            plan = replace(plan, isolated=self.order.isolated, seed=self.run_number, beside=self.order.beside)
            if plan.beside > 1:
                plan = replace(plan, lock=str(self.folder / f"card-{given.selector}"))
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
                if following is None and self.order.device == "cuda":
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
        summary = summarise(self._read(), self.facts | {"complete": complete}, self.known_noise)
        if summary["aa"]["gates"] and self.order.output is not None:
            write_whole(self.order.output, json.dumps(summary, indent=1) + "\n")
        return summary

    def _read(self) -> list[dict[str, Any]]:
        return read_rows(self.rows)[1:]  # behind the head
