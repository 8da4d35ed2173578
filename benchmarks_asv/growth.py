"""Measures how perfsuite's own work grows with the number of cases: `nox -s growth -- growth --cases 1000000`.

Each quantity is measured at sizes that rise by factors of ten, up to the one asked for. The exponent is the slope
between the last two sizes in logarithms. Times are seconds of CPU. A size beyond the largest measured one is
extrapolated, and called so. `nox -s growth -- figures` measures times and memory against fixed limits instead, and
`-- gate` what a gate takes beside its timed calls.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import scale
from figures import figures, of_gate
from nightly.written import update

from perfsuite.history import series_index
from perfsuite.record import index_db
from perfsuite.report import case_index

LIMITS: dict[str, float] = {"look-up": 0.2, "rebuild": 1.05, "export": 1.05, "compare, warm": 1.05, "report": 1.05}
"""Quantity -> the largest exponent that is allowed."""
FIRST = 1_000
COMMITS = 100
"""Commits with results; the cases are divided among them. A look-up returns a case's samples at all of them."""
REPEATS = 5


def main() -> int:
    """Measure, print rows, write them; 1 if anything is above its limit."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("part", nargs="?", choices=("growth", "figures", "gate"), default="growth")
    parser.add_argument("--cases", type=int, default=100_000, help="the largest number of cases (default 100000)")
    parser.add_argument("--extrapolate", type=int, default=10_000_000, help="also extrapolate to so many cases")
    parser.add_argument("--only", nargs="+", choices=LIMITS, default=LIMITS, help="only these quantities")
    parser.add_argument("--output", type=Path, help="write the rows as JSON; those of other quantities stay")
    given = parser.parse_args()
    if given.cases < 10 * FIRST:
        parser.error(f"--cases is {given.cases}; it must be at least {10 * FIRST}")
    wanted = [name for name in LIMITS if name in given.only]
    rows = []
    parts = {"figures": figures, "gate": of_gate, "growth": lambda: grown(wanted, given.cases, given.extrapolate)}
    for row in parts[given.part]():
        rows.append(row)
        print("; ".join(f"{name}: {value}" for name, value in row.items()), flush=True)
    if given.output:
        update(given.output, rows, key="quantity")
    return int(not all(row["held"] == "yes" for row in rows))


def grown(names: list[str], cases: int, far: int) -> list[dict[str, Any]]:
    """A row of each quantity, at sizes up to a number of cases."""
    sizes = [FIRST * 10**power for power in range(int(math.log10(cases / FIRST)) + 1)]
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for size in sizes:
        with tempfile.TemporaryDirectory(prefix="perfsuite-growth-") as folder:
            for name, value in measured(Path(folder), size, names).items():
                seconds[name].append(value)
                print(f"{size:>10} cases  {name:<14} {value * 1e3:10.2f} ms", flush=True)
    rows = []
    for name, values in seconds.items():
        exponent, limit = math.log10(values[-1] / values[-2]), LIMITS[name]
        row = {"quantity": name} | {f"{size:,} cases": shown(value) for size, value in zip(sizes, values, strict=True)}
        row |= {"exponent": f"{exponent:.2f}", "at most": str(limit)}
        row["held"] = "yes" if exponent <= limit else "no"
        rows.append(row | {f"{far:,} cases, extrapolated": shown(values[-1] * (far / sizes[-1]) ** exponent)})
    return rows


def measured(folder: Path, cases: int, names: list[str]) -> dict[str, float]:
    """Quantity -> seconds at a number of cases."""
    one = scale.write_record(folder / "one.jsonl", cases)
    two = scale.write_record(folder / "two.jsonl", cases, factor=1.0001)
    title = scale.write_results(folder / "machine", COMMITS, cases=cases // COMMITS)
    with scale.inside(folder):
        index = index_db.open_index(folder)

        def rebuild() -> None:
            case_index.indexed(index, one)
            series_index.update(index, folder / "machine")

        def compare() -> None:
            sides = [case_index.indexed(index, path) for path in (one, two)]
            case_index.compared(index, *sides, least=0.03)

        def look_up() -> None:
            series_index.samples_of(index, folder / "machine", {}, [title], [repr("case 7")])

        works = {"rebuild": rebuild, "compare, warm": compare, "look-up": look_up}
        works |= {"report": lambda: scale.main(["report", str(one)]), "export": lambda: scale.export(one, folder)}
        repeats = {"compare, warm": REPEATS, "look-up": REPEATS}
        if "rebuild" not in names:
            rebuild()
        return {name: min(timed(works[name]) for _ in range(repeats.get(name, 1))) for name in names}


def shown(seconds: float) -> str:
    """Seconds in the unit that fits."""
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"


def timed(work: Callable[[], object]) -> float:
    """Seconds of CPU time that `work` takes, which other processes change least."""
    start = time.process_time()
    work()
    return time.process_time() - start


if __name__ == "__main__":
    sys.exit(main())
