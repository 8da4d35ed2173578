"""Benchmark of a gate: the time that a test takes beside its timed calls, once its candidate has been examined."""

from __future__ import annotations

import importlib.util
import os
import statistics
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from perfsuite.record.store import read_record

ROOT = Path(__file__).resolve().parents[2]
CASES = 101
LIMIT_SECONDS = 0.015
"""Most time of a case beside its timed calls, on an otherwise quiet machine with two cores."""
SUITE = """
import pytest
import torch
from perfsuite import Gemm


def product(a, b):
    return torch.matmul(a, b)


@pytest.mark.perf_target(against="cublas", at_least=0.5)
@pytest.mark.parametrize("number", range({cases}))
def test_product(perf, number):
    perf(Gemm(64, 64, 64, dtype="float32"), product)
"""


def seconds_a_case(cases: int = CASES) -> dict[str, float]:
    """Medians over the cases of one run, in seconds; the first case, which is examined, is left out.

    "timed": all timed calls, those of the warm-up included. "beside": the rest of the test. "checks": the part of it
    that judges results.
    """
    with tempfile.TemporaryDirectory(prefix="perfsuite-gate-") as name:
        folder = Path(name)
        (folder / "test_many.py").write_text(SUITE.format(cases=cases))
        line = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "perfsuite.plugin"]
        line += ["--perf-portable", "--perf-record=gates.jsonl", "--junitxml=tests.xml", "test_many.py"]
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST", "PERFSUITE"))}
        kept |= {
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTHONPATH": str(ROOT),
        }
        done = subprocess.run(line, cwd=folder, env=kept, capture_output=True, text=True, check=False)
        if done.returncode not in (0, 1, 20):
            raise RuntimeError(
                f"the suite ended with exit code {done.returncode}: {(done.stdout + done.stderr)[-600:]}"
            )
        of_tests = ElementTree.parse(folder / "tests.xml").getroot().iter("testcase")
        whole = {f"test_many.py::{test.get('name')}": float(test.get("time", "nan")) for test in of_tests}
        found = read_record(folder / "gates.jsonl")[1:]
    timed = [case.gpu_seconds or 0.0 for case in found]
    return {
        "beside": statistics.median(whole[str(case.test)] - of for case, of in zip(found, timed, strict=True)),
        "checks": statistics.median(case.check_seconds or 0.0 for case in found),
        "timed": statistics.median(timed),
    }


class Gate:
    """Law: 15 ms a case, whatever the number of cases."""

    timeout = 600.0
    number = repeat = 1
    params = (11, 101)
    param_names = ("cases",)
    unit = "seconds"

    def setup(self, cases: int) -> None:
        if importlib.util.find_spec("torch") is None:
            raise NotImplementedError("torch is not installed")  # asv then leaves it out

    def track_seconds_beside(self, cases: int) -> float:
        """Of a case, beside its timed calls."""
        return seconds_a_case(cases)["beside"]
