"""Measures how perfsuite's own work grows with the number of cases: `nox -s growth -- --cases 1000000`.

Each quantity is measured at sizes that rise by factors of ten, up to the one asked for. The exponent is the slope
between the last two sizes in logarithms. Times are seconds of CPU. A size beyond the largest measured one is
extrapolated, and called so.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "own"))

import scale

from perfsuite.history import series_index
from perfsuite.record import index_db
from perfsuite.report import case_index

LIMITS = {"look-up": 0.2, "compare, warm": 1.05, "rebuild": 1.05, "report": 1.05}
"""Quantity -> the largest exponent that is allowed."""
FIRST = 1_000
COMMITS = 100
"""Commits with results; the cases are divided among them. A look-up returns a case's samples at all of them."""
REPEATS = 5


def main() -> int:
    """Measure, print a table, write JSON; 1 if an exponent is above its limit."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cases", type=int, default=100_000, help="the largest number of cases (default 100000)")
    parser.add_argument("--extrapolate", type=int, default=10_000_000, help="also extrapolate to so many cases")
    parser.add_argument("--output", type=Path, help="write the figures as JSON")
    given = parser.parse_args()
    if given.cases < 10 * FIRST:
        parser.error(f"--cases is {given.cases}; it must be at least {10 * FIRST}")
    sizes = [FIRST * 10**power for power in range(int(math.log10(given.cases / FIRST)) + 1)]
    seconds: dict[str, list[float]] = {name: [] for name in LIMITS}
    for size in sizes:
        with tempfile.TemporaryDirectory(prefix="perfsuite-growth-") as folder:
            for name, value in measured(Path(folder), size).items():
                seconds[name].append(value)
                print(f"{size:>10} cases  {name:<14} {value * 1e3:10.2f} ms", flush=True)
    exponents = {name: math.log10(values[-1] / values[-2]) for name, values in seconds.items()}
    found = {"sizes": sizes, "seconds": seconds, "exponents": exponents, "limits": LIMITS}
    for name, exponent in exponents.items():
        far = seconds[name][-1] * (given.extrapolate / sizes[-1]) ** exponent
        held = "" if exponent <= LIMITS[name] else f", above its limit {LIMITS[name]}"
        print(f"{name:<14} exponent {exponent:.2f}{held}; extrapolated to {given.extrapolate} cases: {far:.3g} s")
    if given.output:
        given.output.write_text(json.dumps(found, indent=1) + "\n")
    return int(any(exponents[name] > limit for name, limit in LIMITS.items()))


def measured(folder: Path, cases: int) -> dict[str, float]:
    """Quantity -> seconds at a number of cases."""
    one = scale.write_record(folder / "one.jsonl", cases)
    two = scale.write_record(folder / "two.jsonl", cases, factor=1.0001)
    title = scale.write_results(folder / "machine", COMMITS, cases=cases // COMMITS)
    with scale.inside(folder):
        index = index_db.open_index(folder)

        def compare() -> None:
            sides = [case_index.indexed(index, path) for path in (one, two)]
            case_index.compared(index, *sides, least=0.03)

        def look_up() -> None:
            series_index.samples_of(index, folder / "machine", {}, [title], repr("case 7"))

        found = {"rebuild": timed(lambda: series_and_cases(index, folder, one))}
        case_index.indexed(index, two)
        found["compare, warm"] = min(timed(compare) for _ in range(REPEATS))
        found["look-up"] = min(timed(look_up) for _ in range(REPEATS))
        found["report"] = timed(lambda: scale.main(["report", str(one)]))
    return found


def series_and_cases(index: index_db.Index, folder: Path, record: Path) -> None:
    """Fill the index with the cases of a record and with the series of the result files."""
    case_index.indexed(index, record)
    series_index.update(index, folder / "machine")


def timed(work: Callable[[], object]) -> float:
    """Seconds of CPU time that `work` takes, which other processes change least."""
    start = time.process_time()
    work()
    return time.process_time() - start


if __name__ == "__main__":
    sys.exit(main())
