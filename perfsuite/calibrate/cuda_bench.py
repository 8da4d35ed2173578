"""The calibration's experiment with NVIDIA's `cuda-bench` (NVBench for Python), where it is installed.

NVBench owns the process in which it measures. A child process, `python -m perfsuite.calibrate.cuda_bench PLAN JSON`,
therefore measures pairs of samples, rival and candidate. Its file is split into one of rivals and one of candidates.
NVBench's two compare scripts then judge each pair. The legacy script compares the distance of the means with the
smaller of the two relative standard deviations.
"""

from __future__ import annotations

import copy
import json
import random
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TextIO

from perfsuite.calibrate.cases import CalibrationCase, cases
from perfsuite.calibrate.plan import PLANTED, SIDE_SECONDS, Plan, open_clock, write_row

RULES = {
    "cuda-bench, compare-legacy": "cuda.bench.scripts.nvbench_compare",
    "cuda-bench, compare-robust": "cuda.bench.scripts.nvbench_compare_robust",
}
AXIS = "sample"
MOST_SAMPLES = 4000
"""Values of the axis. Samples after the time is up are skipped."""
STARTING_SECONDS = 20.0
"""Time of the child beside its measurements."""
COMPARE_SECONDS = 10.0


def installed() -> bool:
    """True if cuda-bench can be found. It is not loaded."""
    try:
        return find_spec("cuda.bench") is not None
    except ModuleNotFoundError:
        return False


def run_cuda_bench(plan: Plan, output: TextIO, seconds: float) -> None:
    """Measure pairs for `seconds` and write a row for each pair and rule. Failures are printed on stderr."""
    with tempfile.TemporaryDirectory(prefix="perfsuite-cuda-bench-") as folder:
        results = Path(folder, "results.json")
        file = Path(folder, "plan.json")
        file.write_text(json.dumps(asdict(replace(plan, seconds=seconds))))
        begun = time.monotonic()
        line = ["perfsuite.calibrate.cuda_bench", str(file), str(results)]
        done = _run("cuda-bench", line, seconds + STARTING_SECONDS)
        if done is None:
            return
        if done.returncode or not results.is_file():
            print(f"cuda-bench ended with exit code {done.returncode}: {_end_of(done)}", file=sys.stderr)
            return
        try:
            reference, candidate = split(json.loads(results.read_text()))
        except ValueError as error:
            print(f"cuda-bench left a file that cannot be read: {error}", file=sys.stderr)
            return
        states = [state for benchmark in reference["benchmarks"] for state in benchmark["states"]]
        each = (time.monotonic() - begun) / max(1, len(states))
        for name, root in (("rival.json", reference), ("candidate.json", candidate)):
            Path(folder, name).write_text(json.dumps(root))
        for peer, module in RULES.items():
            for number, status in compare(module, Path(folder)).items():
                case, slowdown = gate_of(plan, number)
                write_row(output, plan.peer_row(case.name, slowdown, peer, alarm=status == "SLOW", seconds=each))


def _run(name: str, module: list[str], seconds: float) -> subprocess.CompletedProcess[str] | None:
    """Run a module with its arguments in a child process; None, and a line on stderr, after `seconds`."""
    line = [sys.executable, "-m", *module]
    try:
        return subprocess.run(line, capture_output=True, text=True, check=False, timeout=seconds)
    except subprocess.TimeoutExpired:
        print(f"{name} took more than {seconds:g} s", file=sys.stderr)
        return None


def _end_of(done: subprocess.CompletedProcess[str]) -> str:
    return " / ".join((done.stderr or done.stdout).strip().splitlines()[-3:])


def gate_of(plan: Plan, number: int) -> tuple[CalibrationCase, float]:
    """The case and the planted slow-down of pair `number`: all combinations in turn, in random order by a seed."""
    gates = [(case, slowdown) for case in cases(plan.device) for slowdown in PLANTED]
    cycle, place = divmod(number, len(gates))
    random.Random(f"{plan.process} cuda-bench {cycle}").shuffle(gates)
    return gates[place]


def split(root: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Files of rivals and of candidates: samples 2 i and 2 i + 1 become sample i of each. Lone samples are left out.

    Raises ValueError if a sample lacks NVBench's axis.
    """
    sides = [copy.deepcopy(root), copy.deepcopy(root)]
    for index, benchmark in enumerate(root.get("benchmarks") or ()):
        found: dict[int, dict[str, Any]] = {}
        for state in benchmark["states"]:
            if not state.get("is_skipped") and state.get("summaries"):
                found[_sample(state)] = state
        pairs = [number // 2 for number in found if number % 2 == 0 and number + 1 in found]
        for side, into in enumerate(sides):
            states = [_renumbered(found[2 * pair + side], 2 * pair + side, pair) for pair in pairs]
            into["benchmarks"][index]["states"] = states
    return sides[0], sides[1]


def _sample(state: dict[str, Any]) -> int:
    for value in state.get("axis_values") or ():
        if value["name"] == AXIS:
            return int(value["value"])
    raise ValueError(f"NVBench's state {state.get('name')!r} has no axis {AXIS!r}")


def _renumbered(state: dict[str, Any], old: int, new: int) -> dict[str, Any]:
    state = copy.deepcopy(state)
    state["name"] = re.sub(rf"\b{AXIS}={old}\b", f"{AXIS}={new}", state["name"])
    for value in state["axis_values"]:
        if value["name"] == AXIS:
            value["value"] = type(value["value"])(new)
    return state


def compare(module: str, folder: Path) -> dict[int, str]:
    """Number of a pair -> its status (SAME, SLOW, FAST, AMBG, ????) by one of NVBench's scripts."""
    line = [module, "--no-color", str(folder / "rival.json"), str(folder / "candidate.json")]
    done = _run(module, line, COMPARE_SECONDS)
    if done is None:
        return {}
    found = statuses(done.stdout)
    if not found:
        print(f"{module} compared nothing: {_end_of(done)}", file=sys.stderr)
    return found


def statuses(printed: str) -> dict[int, str]:
    """The first and the last column of the table that NVBench's compare scripts print."""
    found = {}
    for line in printed.splitlines():
        columns = [column.strip() for column in line.strip().strip("|").split("|")]
        status = re.search(r"SAME|SLOW|FAST|AMBG|\?{4}", columns[-1])
        if len(columns) > 2 and columns[0].isdigit() and status:
            found[int(columns[0])] = status[0]
    return found


def measure(plan: Plan, results: Path) -> None:
    """Measure pairs under NVBench until the time is spent, and write NVBench's JSON. NVBench ends the process."""
    import cuda.bench as nvbench  # type: ignore[import-not-found, unused-ignore]
    import torch

    started = time.monotonic()
    opened: dict[int, Any] = {}

    def one(state: Any) -> None:
        number, side = divmod(state.get_int64(AXIS), 2)
        if number not in opened:
            for clock in opened.values():
                clock.close()
            opened.clear()
            if time.monotonic() - started > plan.seconds:
                state.skip("the time is spent")
                return
            case, slowdown = gate_of(plan, number)
            opened[number] = open_clock(plan, case, seed=plan.process * 100_000 + number, slowdown=slowdown)
        candidate, rival = opened[number].replays()
        replay = candidate if side else rival

        def launch(given: Any) -> None:
            with torch.cuda.stream(torch.cuda.ExternalStream(given.get_stream().addressof())):
                replay()

        state.exec(launch, batched=False)

    torch.cuda.init()
    benchmark = nvbench.register(one)
    benchmark.add_int64_axis(AXIS, list(range(MOST_SAMPLES)))
    benchmark.set_criterion_param_float64("min-time", SIDE_SECONDS)
    benchmark.set_timeout(10 * SIDE_SECONDS)
    nvbench.run_all_benchmarks([sys.argv[0], "--json", str(results)])


if __name__ == "__main__":
    measure(Plan.read(Path(sys.argv[1])), Path(sys.argv[2]))
