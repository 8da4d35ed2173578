"""asv's benchmarks of a repository: the gated cases of its tests, and the problems that cases.json follows without one.

A file of asv's folder of benchmarks makes them its own:

    from perfsuite.cli.asv_benchmarks import benchmarks

    globals().update(benchmarks(__file__))

One run of the gates a commit (`setup_cache`) measures all of them; the benchmarks return its samples. The suite that
measures is the checkout's own, the same for all commits; the kernels are those of the commit that asv installed.
cases.json lists the series, so that their parameters are the same on every machine and for every old commit: a case
that cannot run there is skipped.
"""

from __future__ import annotations

import math
import os
import subprocess
import sysconfig
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from perfsuite.cli.asv_problems import collected, read_pairs
from perfsuite.history import measure_build, run_pytest, series
from perfsuite.history.asv_files import DECLARED_FILE, asv_value, read_declared
from perfsuite.history.projects import has_build
from perfsuite.record.fingerprint import COMMIT_VARIABLE
from perfsuite.record.schema import RecordError
from perfsuite.record.store import read_record

OPTIONS_VARIABLE = "PERFSUITE_ASV_OPTIONS"
"""More options for pytest, such as "--perf-seconds=0.2"; given by `perfsuite history --asv`."""
PORTABLE_VARIABLE = "PERFSUITE_ASV_PORTABLE"
"""Set by `perfsuite history --asv --portable`: measure on the processor, also where there is a GPU."""
TESTS_VARIABLE = "PERFSUITE_ASV_TESTS"
LONGEST_SECONDS = 4 * 3600.0
GATED = (0, 1, 20)
"""Exit codes of a run whose record counts: all met, some missed or wrong, some undecided."""


def benchmarks(file: str, *, tests: str = "tests/perf", portable_tests: str = "", own: bool = False) -> dict[str, type]:
    """The classes of benchmarks, by group; `file` is the calling module's, in a folder below that of cases.json.

    tests: paths and options for pytest; portable_tests: those without a GPU. own: the checkout holds perfsuite itself.
    """
    declared = Path(file).resolve().parents[1] / DECLARED_FILE
    name = Path(file).stem
    common = type("_Gates", (Gates,), {"declared": declared, "tests": (tests, portable_tests or tests), "own": own})
    found: dict[str, type] = {}
    for group, measures in read_declared(declared).items():
        methods = {
            series.BY_NAME[one].method: _track(group, series.BY_NAME[one], cases) for one, cases in measures.items()
        }
        found[group] = type(group, (common,), {"__module__": name, **methods})
    return found


class Gates:
    """The common part of every group of cases."""

    declared: Path
    tests: tuple[str, str]
    own: bool
    timeout = 60.0

    def setup_cache(self) -> series.Values:
        """Run the gates once for the commit that is installed, and sort the record into series."""
        with tempfile.TemporaryDirectory(prefix="perfsuite-asv-") as folder:
            record = Path(folder) / "record.jsonl"
            done = self._run(record)
            try:
                cases = read_record(record)
            except RecordError as error:
                cases, trouble = [], str(error)
            else:
                trouble = ""
            if done.returncode not in GATED or not cases:
                last = "\n".join((done.stdout + done.stderr).strip().splitlines()[-20:])
                raise RuntimeError(f"the gates did not run (exit {done.returncode}) {trouble}\n{last}")
        return series.values(cases)

    setup_cache.timeout = LONGEST_SECONDS  # type: ignore[attr-defined]

    def _run(self, record: Path) -> subprocess.CompletedProcess[str]:
        import torch

        root = self.declared.parents[1]
        gpu = PORTABLE_VARIABLE not in os.environ and torch.cuda.is_available()
        tests = os.environ.get(TESTS_VARIABLE, self.tests[0 if gpu else 1]).split()
        files, variables = collected(tests, read_pairs(self.declared))
        options = os.environ.get(OPTIONS_VARIABLE, "").split()
        if "ASV_COMMIT" in os.environ:
            variables[COMMIT_VARIABLE] = os.environ["ASV_COMMIT"]
        if not self.own:  # the checkout's own modules must not stand for the commit's
            built = has_build(root) or "ASV_BUILD_DIR" not in os.environ
            variables[measure_build.VARIABLE] = sysconfig.get_path("purelib") if built else os.environ["ASV_BUILD_DIR"]
        # The same rounds and set-ups at every commit.
        line = [*run_pytest.COMMAND, "-p", "perfsuite.history.measure_build"]
        return subprocess.run(
            [*line, "--gpu" if gpu else "--perf-portable", f"--perf-record={record}", *options, *files],
            cwd=root,
            env=os.environ | variables,
            capture_output=True,
            text=True,
            check=False,
        )


def _track(group: str, measure: series.Measure, cases: list[str]) -> Callable[..., Any]:
    def track(self: Gates, measured: series.Values, case: str) -> Any:
        value = measured.get(group, {}).get(measure.name, {}).get(case, math.nan)
        if value is None:
            raise AssertionError(f"{case}: the answer is wrong, so what it costs does not count")
        result, samples, number = asv_value(value)
        return result if samples is None else {"samples": samples, "number": number}

    track.__name__ = measure.method
    track.pretty_name = series.readable_name(group, measure)  # type: ignore[attr-defined]
    track.unit = measure.unit  # type: ignore[attr-defined]
    track.version = series.VERSION  # type: ignore[attr-defined]
    track.params = [cases]  # type: ignore[attr-defined]
    track.param_names = [series.PARAMETER]  # type: ignore[attr-defined]
    return track
