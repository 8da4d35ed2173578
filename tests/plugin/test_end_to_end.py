"""The whole way, with nothing made up: problems, oracle, host clock, verdict, record, on this machine's CPU."""

from __future__ import annotations

import pytest

from perfsuite.record.store import read_record

from .conftest import ROOT

TESTS = """
import pytest
import torch
from perfsuite import Attention, Gemm

# Targets far away, and one thread: on a busy machine nothing closer could be decided.
torch.set_num_threads(1)

def twice(a, b):
    torch.mm(a, b)
    return torch.mm(a, b)

def nearly(a, b):
    return torch.mm(a, b) * 1.001

def breaks(a, b):
    raise RuntimeError("no kernel image is available")

@pytest.mark.perf_target(against="cublas", at_least=0.01)
def test_met(perf):
    assert perf(Gemm(96, 96, 96, dtype="float32"), torch.mm).speed > 0

@pytest.mark.perf_target(against="cublas", at_least=200)
def test_missed(perf):
    perf(Gemm(96, 96, 96, dtype="float32"), twice)

@pytest.mark.perf_target(against="cublas")
def test_wrong(perf):
    perf(Gemm(96, 96, 96, dtype="float32"), nearly)

@pytest.mark.perf_target(against="cublas")
def test_breaks(perf):
    perf(Gemm(96, 96, 96, dtype="float32"), breaks)

@pytest.mark.correctness(against="sdpa:math")
def test_checked(perf):
    made = perf(Attention(1, 2, 32, 16, dtype="float32"), torch.nn.functional.scaled_dot_product_attention)
    assert made.speed is None

@pytest.mark.perf_target(at_least=0.01)
def test_custom(perf):
    perf(torch.softmax, args=(torch.randn(64, 64),), kwargs={"dim": -1}, against="torch.nn.functional.softmax")

@pytest.mark.perf_target(at_least=0.01)
def test_cold_and_hot(perf):
    perf(torch.tanh, args=(torch.randn(64, 64),), against=torch.tanh, cache="both")

@pytest.mark.perf_target(against=torch.neg, at_least=0.01)
def test_custom_marked(perf):
    perf(torch.neg, args=(torch.randn(64, 64),))
"""


def test_from_problem_to_record(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    for name in ("PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT", "PYTEST_ADDOPTS"):
        monkeypatch.delenv(name, raising=False)
    pytester.makepyfile(test_it=TESTS)
    arguments = ["--perf-portable", "--perf-seconds=3", "--perf-record=record.jsonl", "-p", "perfsuite.plugin"]
    result = pytester.runpytest_subprocess(*arguments)
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*portable backend: host clock on the CPU, not a GPU*"])
    recorded = read_record(pytester.path / "record.jsonl")
    cases = {(case.test or "").partition("::")[2]: case for case in recorded}
    both = [case for case in recorded if case.test == "test_it.py::test_cold_and_hot"]
    assert [(case.cache, case.rotation == 1) for case in both] == [("cold", False), ("hot", True)]
    assert {name: (case.verdict, case.reason) for name, case in cases.items()} == {
        "test_met": ("MET", "fast-enough"),
        "test_missed": ("MISSED", "too-slow"),
        "test_wrong": ("WRONG", "inaccurate"),
        "test_breaks": ("WRONG", "candidate-failed"),
        "test_checked": ("MET", "checked"),
        "test_custom": ("MET", "fast-enough"),
        "test_cold_and_hot": ("MET", "fast-enough"),
        "test_custom_marked": ("MET", "fast-enough"),
    }
    met = cases["test_met"]
    assert met.clock == "host"
    assert met.gpu is None
    assert met.rival_seconds is not None
    assert len(met.samples.candidate_seconds) == len(met.samples.rival_seconds) >= 4
    assert met.candidate_error is not None
    assert met.error_limit is not None
    assert met.candidate_error <= met.error_limit
    assert "no kernel image is available" in cases["test_breaks"].sentence
