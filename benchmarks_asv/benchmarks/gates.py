"""asv's benchmarks: the gated cases of tests/perf, and the problems that cases.json follows without a test.

One run of the gates a commit (`setup_cache`) measures all of them; the benchmarks return its samples. The suite that
measures is the checkout's own, the same for all commits; the kernels are those of the commit that asv installed.
cases.json lists the series, so that their parameters are the same on every machine and for every old commit: a case
that cannot run there is skipped.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from perfsuite.cli.asv_problems import collected, read_pairs  # noqa: E402
from perfsuite.history import series  # noqa: E402
from perfsuite.history.asv_files import DECLARED_FILE, asv_value, read_declared  # noqa: E402
from perfsuite.record.fingerprint import COMMIT_VARIABLE  # noqa: E402
from perfsuite.record.schema import RecordError  # noqa: E402
from perfsuite.record.store import read_record  # noqa: E402

DECLARED = ROOT / "benchmarks_asv" / DECLARED_FILE
OPTIONS_VARIABLE = "PERFSUITE_ASV_OPTIONS"
"""More options for pytest, such as "--perf-seconds=0.2"; given by `nox -s history`."""
TESTS_VARIABLE = "PERFSUITE_ASV_TESTS"
LONGEST_SECONDS = 4 * 3600.0
GATED = (0, 1, 20)
"""Exit codes of a run whose record counts: all met, some missed or wrong, some undecided."""


class _Gates:
    """The common part of every group of cases."""

    timeout = 60.0

    def setup_cache(self) -> series.Values:
        """Run the gates once for the commit that is installed, and sort the record into series."""
        with tempfile.TemporaryDirectory(prefix="perfsuite-asv-") as folder:
            record = Path(folder) / "record.jsonl"
            done = _run(record)
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


def _run(record: Path) -> subprocess.CompletedProcess[str]:
    import cuda_llm_ops
    import torch

    gpu = cuda_llm_ops.build_info()["flavour"] == "cuda" and torch.cuda.is_available()
    tests = os.environ.get(TESTS_VARIABLE, "tests/perf" if gpu else "tests/perf --ignore=tests/perf/hopper").split()
    files, variables = collected(tests, read_pairs(DECLARED))
    options = os.environ.get(OPTIONS_VARIABLE, "").split()
    commit = {COMMIT_VARIABLE: os.environ["ASV_COMMIT"]} if "ASV_COMMIT" in os.environ else {}
    line = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "perfsuite.plugin"]
    line += ["-p", "perfsuite.history.measure_build"]  # the same rounds and set-ups at every commit
    return subprocess.run(
        [*line, "--gpu" if gpu else "--perf-portable", f"--perf-record={record}", *options, *files],
        cwd=ROOT,  # so that the perfsuite of the checkout is imported; its kernels lie in ext/, out of the way
        env=os.environ | commit | variables,
        capture_output=True,
        text=True,
        check=False,
    )


def _track(group: str, measure: series.Measure, cases: list[str]) -> Callable[..., Any]:
    def track(self: _Gates, measured: series.Values, case: str) -> Any:
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


for _group, _measures in read_declared(DECLARED).items():
    _methods = {
        series.BY_NAME[_name].method: _track(_group, series.BY_NAME[_name], _cases)
        for _name, _cases in _measures.items()
    }
    globals()[_group] = type(_group, (_Gates,), {"__module__": __name__, **_methods})
