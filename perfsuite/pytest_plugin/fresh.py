"""A suspect case in a fresh process: its test alone, in a pytest of its own, whose rounds are then counted in.

What one process measures shares that process's addresses, heap and clocks; a case that is about to be MISSED gets a
second process before it is.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from perfsuite.pytest_plugin.run import FRESH_VARIABLE, RUN

if TYPE_CHECKING:
    from perfsuite.clock.rounds import Round

VARIABLE = FRESH_VARIABLE
LONGEST_SECONDS = 120.0
"""Start of Python, torch and CUDA included."""


def is_fresh() -> bool:
    """Whether this process only measures a suspect for another one, which waits and keeps the card's locks."""
    return VARIABLE in os.environ


class Waiting:
    """A process that imports what takes long and then waits for the arguments of its pytest.

    It uses nothing of the card before. It ends by itself when this process does: its standard input ends then.
    """

    _CODE = """
import contextlib, json, os, sys
import pytest, torch
with contextlib.suppress(ImportError):
    import hypothesis  # its plugin imports it in the end, whether it was used or not
line = sys.stdin.readline()
if line:
    sys.stdin = open(os.devnull)
    code = pytest.main(json.loads(line))
    os._exit(int(code))
"""

    def __init__(self, root: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", self._CODE],
            cwd=root,
            env=_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def run(self, arguments: Sequence[str]) -> bool:
        """Run pytest with these arguments; False where it takes longer than LONGEST_SECONDS, or died before."""
        try:
            self._process.communicate(json.dumps(list(arguments)) + "\n", timeout=LONGEST_SECONDS)
        except subprocess.TimeoutExpired:
            return False
        finally:
            self.end()
        return True  # the verdict of one process is not what is asked of it

    def end(self) -> None:
        """Kill it, if it has not ended."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()


_NEXT = pytest.StashKey[Waiting]()
"""The process for the next suspect: it imports while the cases in between are measured."""
CORES_FOR_TWO = 4
"""With fewer, importing beside a case that is being measured would show in its host time."""


def measure_afresh(item: pytest.Item, number: int) -> list[Round]:
    """Rounds of a test's case of that number (from 0), measured in a process of its own; none where that fails."""
    config, run = item.config, item.config.stash[RUN]
    waiting = config.stash.get(_NEXT, None) or Waiting(config.rootpath)
    found = rounds_elsewhere(item.nodeid, number, root=config.rootpath, options=options_of(config), waiting=waiting)
    if run.options.gpu and (os.cpu_count() or 1) >= CORES_FOR_TWO:
        config.stash[_NEXT] = Waiting(config.rootpath)
        run.held.callback(config.stash[_NEXT].end)
    return found


def rounds_elsewhere(
    test: str, number: int, *, root: Path, options: Sequence[str], waiting: Waiting | None = None
) -> list[Round]:
    """Run one test from `root` in a pytest of its own and return the rounds of its case of that number.

    An empty list where the process fails, takes longer than LONGEST_SECONDS, or leaves no such case. Nothing is
    retried: the caller asks once.
    """
    with tempfile.TemporaryDirectory(prefix="perfsuite-fresh-") as folder:
        record = Path(folder) / "record.jsonl"
        line = ["-q", "-p", "perfsuite.plugin", *options, f"--rootdir={root}", f"--perf-record={record}", test]
        if not (waiting or Waiting(root)).run(line):
            return []
        return rounds_in(record, test, number)


def rounds_in(record: Path, test: str, number: int) -> list[Round]:
    """The rounds of a test's case of that number, from a record; none where the record or the case is not there."""
    from perfsuite.record.schema import RecordError
    from perfsuite.record.store import read_record

    try:
        cases = [case for case in read_record(record) if case.get("test") == test]
    except RecordError:
        return []
    return rounds_of(cases[number]["samples"]) if number < len(cases) else []


def options_of(config: pytest.Config) -> list[str]:
    """Options with which another pytest collects the same tests and measures on the same backend, on other inputs."""
    options = config.stash[RUN].options
    # A worker of xdist runs without a terminal; a run of its own does not.
    line = [f"-p{name}" for name in config.getoption("plugins", None) or () if name != "no:terminal"]
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
    line += [f"--perf-distribution={options.distribution}", "--perf-markdown="]
    if options.targets is not None:
        line.append(f"--perf-targets={options.targets}")
    if options.calibration is not None:
        line.append(f"--perf-calibration={options.calibration}")
    return line


def rounds_of(columns: Mapping[str, Sequence[Any]]) -> list[Round]:
    """The rounds that a record keeps as columns."""
    from perfsuite.clock.rounds import Round

    count = len(columns.get("candidate_seconds", ()))
    sides = (columns.get(name, ()) for name in ("candidate_seconds", "rival_seconds", "first"))
    setups, clocks = columns.get("setup", [0] * count), columns.get("sm_clock_hz", [None] * count)
    return [Round(*values) for values in zip(*sides, setups, clocks, strict=True)]


def _environment() -> dict[str, str]:
    """This process's, the card that was chosen for it included; but the fresh one is no xdist worker."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST_")}
    return kept | {VARIABLE: "1"}
