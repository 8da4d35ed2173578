"""The calibration's experiment with NVIDIA's `cuda-bench` (NVBench for Python), where it is installed.

NVBench owns the process that it measures in, and compares two JSON files afterwards with scripts of its own. So a
child process measures pairs of samples, rival and candidate, under NVBench; the file it writes is split into one of
rivals and one of candidates; and both of NVBench's compare scripts, the legacy one (means further apart than the
smaller of two relative standard deviations) and the robust one, say of each pair whether the candidate is slower.

Run as `python -m perfsuite.calibrate.cuda_bench PLAN JSON`, it is that child.
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

from perfsuite.calibrate.cases import cases
from perfsuite.calibrate.plan import PLANTED, SIDE_SECONDS, Plan, open_clock

RULES = {
    "cuda-bench, compare-legacy": "cuda.bench.scripts.nvbench_compare",
    "cuda-bench, compare-robust": "cuda.bench.scripts.nvbench_compare_robust",
}
AXIS = "sample"
MOST_SAMPLES = 4000
"""Values of the axis; what the time does not allow is skipped."""
STARTING_SECONDS = 20.0
"""What the child may take beside its measurements."""
COMPARE_SECONDS = 10.0


def installed() -> bool:
    """Whether cuda-bench can be found, without loading it."""
    try:
        return find_spec("cuda.bench") is not None
    except ModuleNotFoundError:
        return False


def run_cuda_bench(plan: Plan, output: TextIO, seconds: float) -> None:
    """Measure pairs for so many seconds and write a row for each pair and rule; what fails is told on stderr."""
    with tempfile.TemporaryDirectory(prefix="perfsuite-cuda-bench-") as folder:
        results = Path(folder, "results.json")
        file = Path(folder, "plan.json")
        file.write_text(json.dumps(asdict(replace(plan, seconds=seconds))))
        line = [sys.executable, "-m", "perfsuite.calibrate.cuda_bench", str(file), str(results)]
        begun = time.monotonic()
        try:
            done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=seconds + STARTING_SECONDS)
        except subprocess.TimeoutExpired:
            print(f"cuda-bench took more than {STARTING_SECONDS:g} s longer than its {seconds:g} s", file=sys.stderr)
            return
        if done.returncode or not results.is_file():
            said = (done.stderr or done.stdout).strip().splitlines()[-3:]
            print(f"cuda-bench ended with exit code {done.returncode}: {' / '.join(said)}", file=sys.stderr)
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
            found = compare(module, Path(folder))
            for number, status in found.items():
                case, slowdown = gate_of(plan, number)
                row = {"kind": "peer", "process": plan.process, "case": case.name, "slowdown": slowdown}
                output.write(json.dumps(row | {"peer": peer, "alarm": status == "SLOW", "seconds": each}) + "\n")
        output.flush()


def gate_of(plan: Plan, number: int) -> tuple[Any, float]:
    """The case and the planted slow-down of pair `number`: all combinations in turn, in an order that a seed gives."""
    gates = [(case, slowdown) for case in cases(plan.device) for slowdown in PLANTED]
    cycle, place = divmod(number, len(gates))
    random.Random(f"{plan.process} cuda-bench {cycle}").shuffle(gates)
    return gates[place]


def split(root: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """A file of rivals and one of candidates: samples 2 i and 2 i + 1 become sample i of each; lone ones are left out.

    Raises `ValueError` where the file is not what NVBench's JSON writer gives.
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
    """The status (SAME, SLOW, FAST, AMBG, ????) that one of NVBench's scripts gives each pair, by its number."""
    line = [sys.executable, "-m", module, "--no-color", str(folder / "rival.json"), str(folder / "candidate.json")]
    try:
        done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=COMPARE_SECONDS)
    except subprocess.TimeoutExpired:
        print(f"{module} took more than {COMPARE_SECONDS:g} s", file=sys.stderr)
        return {}
    found = statuses(done.stdout)
    if not found:
        said = (done.stderr or done.stdout).strip().splitlines()[-3:]
        print(f"{module} compared nothing: {' / '.join(said)}", file=sys.stderr)
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
    """Measure pairs under NVBench until the plan's time is spent. In a process of its own: NVBench ends with it."""
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


def main(arguments: list[str]) -> int:
    """The child: measure as the plan's file says and write NVBench's JSON."""
    measure(Plan.read(Path(arguments[0])), Path(arguments[1]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
