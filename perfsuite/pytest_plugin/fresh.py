"""Measures a suspect, a case about to be MISSED, again in a fresh process: a second pytest that runs its test alone.

All rounds of one process share its addresses, heap and clocks, so a second process may disagree.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from perfsuite.clock.rounds import Round
from perfsuite.pytest_plugin import ELSEWHERE, VALUES, WRITTEN
from perfsuite.pytest_plugin.run import FRESH_VARIABLE, RUN
from perfsuite.record.schema import RecordError, plain
from perfsuite.record.store import read_record

LONGEST_SECONDS = 120.0
"""Longest time of the process, including the start of Python, torch and CUDA."""


class Waiting:
    """A process that imports torch and waits for pytest's arguments; it ends when its standard input does.

    It does not use the card while it waits.
    """

    _CODE = """
import contextlib, json, os, sys
import pytest, torch
from perfsuite.history.run_pytest import import_plugins
with contextlib.suppress(ImportError):
    import hypothesis  # its plugin imports it at the end of every run
line = sys.stdin.readline()
if line:
    sys.stdin = open(os.devnull)
    words = json.loads(line)
    import_plugins(words)
    code = pytest.main(words)
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
        """Run pytest with these arguments; False if it took longer than LONGEST_SECONDS."""
        try:
            self._process.communicate(json.dumps(list(arguments)) + "\n", timeout=LONGEST_SECONDS)
        except subprocess.TimeoutExpired:
            return False
        finally:
            self.end()
        return True

    def end(self) -> None:
        """Kill the process, if it still runs."""
        self._process.kill()
        self._process.communicate()


_NEXT = pytest.StashKey[Waiting]()
"""The process for the next suspect; it imports torch while other cases are measured."""
CORES_FOR_TWO = 4
"""With fewer cores, these imports would slow the host side of the case that is being measured."""


def measure_afresh(item: pytest.Item, number: int) -> list[Round]:
    """Rounds of a test's comparison of that number (from 0), measured in a fresh process; empty if that fails."""
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
    """The rounds that `measure_afresh` returns, from a pytest that runs in the folder `root`."""
    with tempfile.TemporaryDirectory(prefix="perfsuite-fresh-") as folder:
        record = Path(folder) / "record.jsonl"
        line = ["-q", "-p", "perfsuite.plugin", *options, f"--rootdir={root}", f"--perf-record={record}", test]
        if not (waiting or Waiting(root)).run(line):
            return []
        return rounds_in(record, test, number)


def rounds_in(record: Path, test: str, number: int) -> list[Round]:
    """The rounds of a test's comparison of that number; empty if it is not in the record, or there is no record."""
    try:
        cases = [case for case in read_record(record) if case.test == plain(test) and case.aspect is None]
    except RecordError:
        return []
    return cases[number].samples.rounds() if number < len(cases) else []


def options_of(config: pytest.Config) -> list[str]:
    """Options for a pytest that collects the same tests and measures on the same backend, with another seed."""
    options = config.stash[RUN].options
    # A worker of xdist runs without a terminal; the fresh process needs one.
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
    line += ["--perf-ci"] if options.ci else []
    line += [f"{flag}=" for flag, *_ in WRITTEN + ELSEWHERE]
    values = options._replace(seed=options.seed + 1)._asdict()
    given = ((flag, values[flag.removeprefix("--perf-").replace("-", "_")]) for flag, *_ in VALUES)
    return line + [f"{flag}={value}" for flag, value in given if value is not None]


def _environment() -> dict[str, str]:
    """This process's environment, with the chosen card, but without the marks of an xdist worker."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST_")}
    return kept | {FRESH_VARIABLE: "1"}
