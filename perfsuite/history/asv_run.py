"""Runs `asv run`. A failure is one sentence, and the history stays as it was.

asv alone enters a commit that does not build as failed in every series, and forgets series that it has not measured.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from perfsuite.history import children
from perfsuite.history.asv_files import (
    asv_itself,
    check_machine,
    check_results,
    keep_series,
    load_results,
    read_benchmarks,
)
from perfsuite.history.builds import FLAVOUR_VARIABLE, lines_and_errors
from perfsuite.history.commits import HistoryError, full_commit
from perfsuite.history.machines import Machine

SUCCEEDED = (0, 2)
"""asv's exit codes of a valid run: 0; 2 if some benchmark failed, such as that of a wrong case."""
TAIL_LINES = 200
KEPT = ".results-before"
"""The folder beside the results that holds them while asv runs."""


def asv_run(
    root: Path,
    config: Path,
    commits: Sequence[str],
    machine: Machine,
    *,
    new: int = 10,
    options: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> None:
    """Let asv build and measure commits, or without any up to `new` new ones, and check its results.

    machine: from `machine_of`; the user's file of asv's machines is neither read nor written. Raises HistoryError, with
    the results as they were, if a commit is unknown or does not build, or if the history is unreadable or of another
    card.
    """
    hashes = [full_commit(root, name) for name in commits]
    results, known = results_of(config), {}
    restore_results(results)
    if (results / "benchmarks.json").exists():
        check_results(results)
        check_machine(results, machine)
        known = read_benchmarks(results)
    with tempfile.TemporaryDirectory(prefix="perfsuite-asv-") as folder, _unless_it_fails(results):
        listed = Path(folder) / "commits.txt"
        listed.write_text("\n".join(hashes))
        chosen = [f"HASHFILE:{listed}"] if hashes else ["NEW", f"--steps={new}"]
        line = ["run", "--config", str(config), "--machine", machine["machine"], "--append-samples", *options, *chosen]
        code, said = _asv(line, root, environment or {}, machine, Path(folder))
        if code == 1 and not hashes and "No commit hashes selected" in said:
            return
        if code not in SUCCEEDED:
            names = ", ".join(commits) or "the new commits"
            raise HistoryError(f"asv could not measure {names}: {_telling(said)}")
        for name, commit in zip(commits, hashes, strict=True):
            _check_measured(results / machine["machine"], name, commit, said)
        keep_series(results, known)


def results_of(config: Path) -> Path:
    """The folder of results that asv's configuration names."""
    return config.parent / str(asv_itself().config.Config.load(str(config)).results_dir)


RUN_ASV = """
import sys
from asv import config, machine
place, flavour = sys.argv.pop(1), sys.argv.pop(1)
machine.MachineCollection.get_machine_file_path = staticmethod(lambda: place)
load = config.Config.load

def loaded(*arguments):
    conf = load(*arguments)
    conf.env_dir += flavour
    return conf

config.Config.load = loaded
from asv.main import main
main()
"""
"""asv with another file of machines than the user's own, `~/.asv-machine.json`, and environments for each flavour."""


def _asv(
    line: Sequence[str], root: Path, environment: Mapping[str, str], machine: Machine, folder: Path
) -> tuple[int, str]:
    """Run asv and print its output as it comes; return its exit code and its last lines."""
    tail: deque[str] = deque(maxlen=TAIL_LINES)
    machines = folder / "asv-machine.json"
    machines.write_text(json.dumps({machine["machine"]: machine, "version": asv_itself().machine.Machine.api_version}))
    flavour = (os.environ | environment).get(FLAVOUR_VARIABLE, "")
    whole = [sys.executable, "-c", RUN_ASV, str(machines), f"-{flavour}" if flavour else "", *line]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with children.started(whole, cwd=root, environment=os.environ | environment, **streams) as running:
        assert running.stdout is not None
        for text in running.stdout:
            print(text, end="", flush=True)
            tail.append(text)
        running.wait()
    return running.returncode, "".join(tail)


def _check_measured(folder: Path, name: str, commit: str, said: str) -> None:
    """Raise HistoryError if asv entered failures only: the commit does not build, or no gate ran."""
    files = [load_results(path) for path in sorted(folder.glob(f"{commit[:8]}-*.json"))]
    mine = [one for one in files if one.commit_hash == commit]
    if not mine:
        raise HistoryError(f"asv left no results of {name}: {_telling(said)}")
    for one in mine:
        found = [one.get_result_value(key, one.get_result_params(key)) for key in one.get_all_result_keys()]
        if found and all(value is None for values in found for value in values):
            raise HistoryError(f"{name} does not build, or its gates do not run: {_telling(said)}")


@contextmanager
def _unless_it_fails(results: Path) -> Iterator[None]:
    """Restore the results if the body raises. If this process is killed, the next one restores them."""
    before = results.with_name(KEPT)
    restore_results(results)
    if results.is_dir():
        partial = results.with_name(f"{KEPT}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        shutil.copytree(results, partial)
        os.replace(partial, before)
    try:
        yield
    except BaseException:
        if before.is_dir():
            restore_results(results)
        else:
            shutil.rmtree(results, ignore_errors=True)
        raise
    shutil.rmtree(before, ignore_errors=True)


def restore_results(results: Path) -> None:
    """Put back the results that a run has kept and could not put back, since it was killed."""
    before = results.with_name(KEPT)
    if before.is_dir():
        print(f"putting back {results}: an earlier run did not end", flush=True)
        shutil.rmtree(results, ignore_errors=True)
        os.replace(before, results)


def _telling(said: str) -> str:
    """The most useful line of asv's output: a compiler's or Python's error, else the last line."""
    lines, errors = lines_and_errors(said)
    return (errors or lines or ["it printed nothing"])[-1][:300]
