"""A test suite on one card against the same through --perf-ray on all cards of this machine: verdicts and time.

    python -m tests.judge.thousand --perfray --seconds 100 --output records/h200/judge.json tests/perf

The words at the end go to pytest. The time is that from the first call of a test to the last one's end. Verdicts may
differ where an interval holds the target. The exit code is 1 if another verdict differs, or if a run does not end.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from drawn import HERE
from measured import kept_in

from perfsuite.device.cards import usable_devices
from perfsuite.record.case import Case
from perfsuite.record.schema import RecordError
from perfsuite.record.store import read_record
from perfsuite.report.matching import matched
from perfsuite.settings import DeviceKind

GOAL = 0.6
ENDED = {0, 1, 20}
"""Exit codes of a run that judged all of its cases."""
ROOT = HERE.parents[1]


@dataclass(frozen=True)
class Suite:
    """A run of the suite that has ended."""

    code: int | None
    """pytest's exit code; None if the time was over."""
    cases: list[Case]
    seconds: float | None
    """From the first call to the last end; None if no test was called."""
    whole: float
    times: Mapping[str, Any] = field(default_factory=dict)
    """What case_times wrote."""


def run(name: str, words: Sequence[str], folder: Path, seconds: float, variables: dict[str, str]) -> Suite:
    """Run pytest, at most so many seconds; its output goes to this process's."""
    record, times = folder / f"{name}.jsonl", folder / f"{name}.json"
    line = [sys.executable, "-m", "pytest", "-q", "-p", "case_times", f"--perf-record={record}", *words]
    path = os.pathsep.join([str(HERE), *(one for one in sys.path if one)])
    environment = {**os.environ, **variables, "PYTHONPATH": path, "PERFSUITE_CASE_TIMES": str(times)}
    print(f"{name}: {' '.join(line[1:])}", flush=True)
    begin, code = time.monotonic(), None
    process = subprocess.Popen(line, cwd=ROOT, env=environment)
    try:
        code = process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.terminate()  # pytest writes what it has
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    called = json.loads(times.read_text()) if times.exists() else None
    cases: list[Case] = []
    with suppress(RecordError):  # a suite of no case, or one that was cut before its first
        cases = list(read_record(record))
    spent = None if called is None else called["last"] - called["first"]
    return Suite(code, cases, spent, time.monotonic() - begin, called or {})


def compared(plain: Suite, other: Suite, name: str = "ray", goal: float = GOAL) -> dict[str, Any]:
    """The verdicts and the times of both runs: an object for the record. name: of the other one."""
    pairs = [(one.before, one.after) for one in matched(plain.cases, other.cases)]
    both = [(one, two) for one, two in pairs if one is not None and two is not None]
    apart = [(one, two) for one, two in both if one.verdict != two.verdict]
    close = [pair for pair in apart if any(map(holds_target, pair))]
    told = [
        f"{one.test} {one.case}: {one.verdict} {one.reason} plain, {two.verdict} {two.reason} {name}: {two.sentence}"
        for one, two in apart
        if (one, two) not in close
    ]
    share = other.seconds / plain.seconds if plain.seconds and other.seconds else None
    return {
        "cases": len(both),
        "in_one_run_only": len(pairs) - len(both),
        "equal_verdicts": len(both) - len(apart),
        "interval_holds_target": len(close),
        "different": [one[:400] for one in told],
        "plain": side(plain),
        name: side(other),
        "share": share,
        "goal": goal,
    }


def side(suite: Suite) -> dict[str, Any]:
    """One run for the record."""
    verdicts = dict(Counter(str(one.verdict) for one in suite.cases))
    return {"exit": suite.code, "seconds": suite.seconds, "whole_seconds": suite.whole, "verdicts": verdicts}


def holds_target(case: Case) -> bool:
    """True if the interval holds the target, or if the case was not decided."""
    low, high, target = case.speed_low, case.speed_high, case.target
    if str(case.verdict) == "UNDECIDED":
        return True
    return low is not None and high is not None and target is not None and low <= target <= high


def main(words: Sequence[str] | None = None) -> int:
    """Run both, and write the comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=100.0, metavar="S", help="of each of both runs (default: 100)")
    parser.add_argument("--seed", type=int, default=0, help="of the inputs (default: 0)")
    parser.add_argument("--output", type=Path, metavar="FILE", help="the record; what else it holds stays there")
    given, rest = parser.parse_known_args(words)
    cards = [card.selector for card in usable_devices(os.environ).cards]
    device: DeviceKind = "cuda" if cards else "cpu"
    common = ["--gpu" if cards else "--perf-portable", f"--perf-seed={given.seed}", *(rest or ["tests/perf"])]
    with tempfile.TemporaryDirectory() as folder:
        limits = (Path(folder), given.seconds)
        first = {"CUDA_VISIBLE_DEVICES": cards[0]} if cards else {}
        plain = run("plain", common, *limits, first)
        ray = run("ray", [*common, "--perf-ray=local"], *limits, {})
    told = {**compared(plain, ray), "words": rest, "workers": max(len(cards), 1)}
    kept_in(given.output, "perf-ray", told, device)
    print(json.dumps(told, indent=1), flush=True)
    return int(bool(told["different"]) or not {plain.code, ray.code} <= ENDED)
