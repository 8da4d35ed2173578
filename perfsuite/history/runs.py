"""Runs a suite in one process, on a build that replaces the installed packages."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from perfsuite.history import children, measure_build, run_pytest
from perfsuite.history.commits import HistoryError
from perfsuite.outcome import EXIT_MET, EXIT_MISSED, EXIT_UNDECIDED
from perfsuite.record.case import Case
from perfsuite.record.fingerprint import COMMIT_VARIABLE, commit_of
from perfsuite.record.schema import RecordError
from perfsuite.record.store import read_record


@dataclass(frozen=True)
class Runner:
    """Runs the suite of the checkout at `root` on builds of commits."""

    root: Path
    tests: Sequence[str]
    portable: bool
    seconds: float
    options: Sequence[str] = ()

    def run(self, build: Path, commit: str, tests: Sequence[str] = (), keep: Path | None = None) -> list[Case]:
        """The cases of one process. Its record stays at `keep`, if given. Raises HistoryError if there is none."""
        with tempfile.TemporaryDirectory(prefix="perfsuite-ab-") as folder:
            record = keep or Path(folder) / "record.jsonl"
            before = _identity(record)  # of an earlier run, which stays until this one has measured
            kind = "--perf-portable" if self.portable else "--gpu"
            line = [*run_pytest.COMMAND, "-p", "perfsuite.history.measure_build", kind]
            line += [f"--perf-record={record}", f"--perf-seconds={self.seconds!r}", *self.options]
            line += tests or self.tests
            done = children.run(line, cwd=self.root, environment=self._environment(build, commit))
            try:
                cases = read_record(record) if _identity(record) != before else []
            except RecordError:
                cases = []
        if done.returncode not in (EXIT_MET, EXIT_MISSED, EXIT_UNDECIDED) or not cases:
            said = (done.stdout + done.stderr).strip().splitlines() or ["pytest printed nothing"]
            why = next((line for line in said if line.startswith("nothing was measured")), said[-1])
            raise HistoryError(f"the suite did not run on {commit[:12]} (exit {done.returncode}): {why}")
        return cases

    def _environment(self, build: Path, commit: str) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST_")}
        paths = [kept["PYTHONPATH"]] if kept.get("PYTHONPATH") else []
        paths.append(str(Path(__file__).parents[2]))  # the folder of this perfsuite
        suite, dirty = commit_of(self.root)
        return kept | {
            "PYTHONPATH": os.pathsep.join(paths),
            measure_build.VARIABLE: str(build),
            measure_build.SUITE_VARIABLE: f"{suite or ''}{'-dirty' if dirty else ''}",
            COMMIT_VARIABLE: commit,
        }


def _identity(path: Path) -> tuple[int, int] | None:
    """Changes when a record is replaced; None if there is no file."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns
