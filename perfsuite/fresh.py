"""A suspect case in a fresh process: its test alone, in a pytest of its own, whose rounds are then counted in.

What one process measures shares that process's addresses, heap and clocks; a case that is about to be MISSED gets a
second process before it is.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from perfsuite.run import FRESH_VARIABLE, RUN

if TYPE_CHECKING:
    from perfsuite.clock.rounds import Round

LONGEST_SECONDS = 120.0
"""Start of Python, torch and CUDA included."""


def measure_afresh(item: pytest.Item, case: str) -> list[Round]:
    """Rounds of the case of that name, measured by its test in a process of its own; none where that fails.

    The card's locks stay with this process, which waits. Nothing is retried: the caller asks once.
    """
    from perfsuite.record.schema import RecordError
    from perfsuite.record.store import read_record

    with tempfile.TemporaryDirectory(prefix="perfsuite-fresh-") as folder:
        record = Path(folder) / "record.jsonl"
        try:
            subprocess.run(
                command(item, record),
                cwd=item.config.rootpath,
                env=_environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=LONGEST_SECONDS,
                check=False,  # the verdict of one process is not what is asked of it
            )
            cases = read_record(record)
        except (OSError, subprocess.TimeoutExpired, RecordError):
            return []
    return [one for found in cases if found["case"] == case for one in rounds_of(found)]


def command(item: pytest.Item, record: Path) -> list[str]:
    """The command line that runs this test alone, on the same backend, with other inputs."""
    config, options = item.config, item.config.stash[RUN].options
    line = [sys.executable, "-m", "pytest", "-q", f"--rootdir={config.rootpath}"]
    # A worker of xdist runs without a terminal; a run of its own does not.
    named = [name for name in config.getoption("plugins", None) or () if name != "no:terminal"]
    line += [f"-p{name}" for name in dict.fromkeys([*named, "perfsuite.plugin"])]
    if config.inipath is not None:
        line.append(f"--config-file={config.inipath}")
    line += [f"--override-ini={one}" for one in config.getoption("override_ini", None) or ()]
    line += [f"--import-mode={config.getoption('importmode')}", "--junitxml=", "--maxfail=0", "-k", "", "-m", ""]
    if config.pluginmanager.hasplugin("xdist"):
        line.append("-n0")
    if config.pluginmanager.hasplugin("_cov"):
        line.append("--no-cov")
    line += ["--perf-portable"] if options.portable else ["--gpu", "--perf-allow-shared"]
    line += [f"--perf-seconds={options.seconds!r}", f"--perf-cache={options.cache}", f"--perf-seed={options.seed + 1}"]
    line += [f"--perf-record={record}", "--perf-markdown="]
    if options.targets is not None:
        line.append(f"--perf-targets={options.targets}")
    if options.calibration is not None:
        line.append(f"--perf-calibration={options.calibration}")
    return [*line, item.nodeid]


def rounds_of(case: dict[str, Any]) -> list[Round]:
    """The rounds that count, from a record's columns."""
    from perfsuite.clock.rounds import Round

    samples = case["samples"]
    count = len(samples.get("candidate_seconds", ()))
    clocks = samples.get("sm_clock_hz", [None] * count)
    columns = (samples.get(name, ()) for name in ("candidate_seconds", "rival_seconds", "first", "setup"))
    return [Round(*values) for values in zip(*columns, clocks, strict=True)]


def _environment() -> dict[str, str]:
    """This process's, the card that was chosen for it included; but the fresh one is no xdist worker."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST_")}
    return kept | {FRESH_VARIABLE: str(os.getpid())}
