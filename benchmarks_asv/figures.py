"""Measures perfsuite's own work against fixed limits: `nox -s growth -- figures`, and `-- gate` on a quiet machine.

Seconds are those of the processor, which other processes change least, but for the gate.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gate
import scale

from perfsuite.history import series_index
from perfsuite.record import index_db

CASES, FILES, LOOK_UPS = 40_000, 1_000, 200
REPEATS = 3


def figures() -> Iterator[dict[str, Any]]:
    """A row of each quantity: measured, most that is allowed, and whether it holds."""
    with tempfile.TemporaryDirectory(prefix="perfsuite-figures-") as name:
        folder = Path(name)
        for record, factor in (("one.jsonl", 1.0), ("two.jsonl", 1.0001)):
            scale.write_record(folder / record, CASES, factor=factor)
        cold = [command(folder, "compare", "one.jsonl", "two.jsonl", cold=True) for _ in range(REPEATS)]
        yield row(f"compare of {CASES:,} cases, cold", middle(cold, 0), 3.0, "s")
        yield row("memory of it", middle(cold, 1) / 1e6, 300.0, "MB")
        warm = [command(folder, "compare", "one.jsonl", "two.jsonl") for _ in range(REPEATS)]
        yield row(f"compare of {CASES:,} cases, warm", middle(warm, 0), 0.5, "s")
        report = [command(folder, "report", "one.jsonl") for _ in range(REPEATS)]
        yield row(f"report of {CASES:,} cases in the terminal", middle(report, 0), 3.0, "s")
        yield row("printed by it", middle(report, 2) / 1e3, 500.0, "kB")
        look_up, of_file = indexed(folder)
        yield row(f"look-up of a case in {FILES:,} result files", look_up * 1e3, 5.0, "ms")
        yield row("indexing of a result file", of_file * 1e3, 10.0, "ms")


def of_gate() -> Iterator[dict[str, Any]]:
    """A row of what a gate takes beside its timed calls. It is wall time, so nothing else may run on the machine."""
    # The least of some runs: what else runs here can only add to it.
    found = min((gate.seconds_a_case() for _ in range(REPEATS)), key=lambda one: one["beside"])
    yield row("a portable gate beside its timed calls", found["beside"] * 1e3, gate.LIMIT_SECONDS * 1e3, "ms")


def row(quantity: str, measured: float, most: float, unit: str) -> dict[str, Any]:
    held = "yes" if measured <= most else "no"
    return {"quantity": quantity, "measured": f"{measured:.3g} {unit}", "at most": f"{most:.4g} {unit}", "held": held}


def command(folder: Path, *words: str, cold: bool = False) -> tuple[float, float, float]:
    """(seconds, bytes of memory, bytes printed) of a command of perfsuite. cold: without an index."""
    if cold:
        (folder / ".perfsuite" / "index.db").unlink(missing_ok=True)
    with (folder / "out").open("w") as out:
        child = subprocess.Popen([sys.executable, "-m", "perfsuite", *words], cwd=folder, stdout=out)
        _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode not in (0, 1):
        raise RuntimeError(f"perfsuite {' '.join(words)} ended with exit code {child.returncode}")
    return used.ru_utime + used.ru_stime, used.ru_maxrss * 1024, (folder / "out").stat().st_size


def middle(found: list[tuple[float, float, float]], place: int) -> float:
    return statistics.median(one[place] for one in found)


def indexed(folder: Path) -> tuple[float, float]:
    """(seconds of a look-up, seconds to index a result file)."""
    title = scale.write_results(folder / "machine", FILES)
    with scale.inside(folder):
        index = index_db.open_index(folder)
        start = time.process_time()
        read = series_index.update(index, folder / "machine")
        of_file = (time.process_time() - start) / read
        times = []
        for number in range(LOOK_UPS):
            start = time.process_time()
            found = series_index.samples_of(index, folder / "machine", {}, [title], [repr(f"case {number}")])
            times.append(time.process_time() - start)
            if len(found) != FILES:
                raise RuntimeError(f"a look-up found {len(found)} of {FILES} commits")
    return statistics.median(times), of_file
