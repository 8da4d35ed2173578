"""A gate that failed decides, whatever runs the test again, skips it or ends it."""

from __future__ import annotations

import pytest

from .conftest import Suite

FIRST_THEN = """
import os
TRIES = []

def {name}():
    TRIES.append(1)
    return {first} if len(TRIES) == 1 else ("MET", 1.25)
"""
# A plugin that tries again by itself and reports the last attempt alone, as `flaky` and `pytest-retry` do.
RETRIES = """
from _pytest.runner import runtestprotocol

@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item, nextitem):
    for attempt in range(3):
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
        if not any(report.failed for report in reports):
            break
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    return True
"""
RERUNS = {
    "option": (("-p", "rerunfailures", "--reruns=2"), ""),
    "marker": (("-p", "rerunfailures"), "@pytest.mark.flaky(reruns=2)\n"),
    "another plugin": ((), ""),
    "another plugin beside the option": (("-p", "rerunfailures", "--reruns=2"), ""),
}


@pytest.mark.parametrize("by", RERUNS)
@pytest.mark.parametrize("verdict", ["WRONG", "MISSED"])
def test_another_attempt_does_not_turn_a_failed_gate_green(suite: Suite, verdict: str, by: str) -> None:
    arguments, mark = RERUNS[by]
    if by.startswith("another"):
        suite.add_hooks(RETRIES)
    source = FIRST_THEN.format(name="shaky", first=f'("{verdict}", 0.5)')
    suite.write(source + f"{mark}@TARGET\ndef test_it(perf): perf(Gemm(8, 8, 8), shaky)\n")
    outcome = suite.run("--perf-portable", *arguments)
    assert outcome.code == 1
    assert [case["verdict"] for case in outcome.cases] == [verdict]
    outcome.has(f"1 {verdict.lower()}; record")


@pytest.mark.parametrize("by", RERUNS)
def test_an_undecided_attempt_may_be_rerun_and_counts_once(suite: Suite, by: str) -> None:
    arguments, mark = RERUNS[by]
    if by.startswith("another"):
        suite.add_hooks(RETRIES)
    source = FIRST_THEN.format(name="shaky", first='("UNDECIDED", 0.9)')
    suite.write(source + f"{mark}@TARGET\ndef test_it(perf): perf(Gemm(8, 8, 8), shaky)\n")
    outcome = suite.run("--perf-portable", *arguments)
    assert outcome.code == 0
    assert [case["verdict"] for case in outcome.cases] == ["MET"]
    assert outcome.properties["test_it"]["perf_verdict"] == "MET"


def test_a_gate_that_stays_wrong_is_one_case(suite: Suite) -> None:
    suite.write("@TARGET\ndef test_it(perf): perf(Gemm(8, 8, 8), wrong)\n")
    outcome = suite.run("--gpu", "-p", "rerunfailures", "--reruns=2")
    assert outcome.code == 1
    assert len(outcome.cases) == 1
    outcome.has("1 wrong; record", "2 rerun")


def test_an_attempt_that_fails_after_a_wrong_case_decides_too(suite: Suite) -> None:
    source = FIRST_THEN.format(name="shaky", first='"WRONG"')
    suite.write(source + "@TARGET\ndef test_it(perf):\n    perf(Gemm(8, 8, 8), shaky)\n    assert len(TRIES) > 1\n")
    outcome = suite.run("--gpu", "-p", "rerunfailures", "--reruns=2")
    assert outcome.code == 1
    assert [case["verdict"] for case in outcome.cases] == ["WRONG"]


def test_a_skip_does_not_lose_a_decided_case(suite: Suite) -> None:
    suite.write(
        "@TARGET\ndef test_it(perf):\n    perf(Gemm(8, 8, 8), wrong)\n    pytest.skip('no more')\n"
        "@TARGET\ndef test_met(perf):\n    perf(Gemm(8, 8, 8), met)\n    pytest.skip('no more')\n"
    )
    outcome = suite.run("--gpu")
    assert outcome.code == 1
    assert outcome.junit == {"test_it": "failed", "test_met": "skipped"}
    outcome.has("wrong came to WRONG")


@pytest.mark.parametrize("call", [1, 30])
def test_a_skip_inside_a_candidate_does_not_lose_a_decided_case(suite: Suite, call: int) -> None:
    (suite.path / "conftest.py").unlink()
    suite.write(
        "CALLS = []\n"
        "def skips(a, b):\n    CALLS.append(1)\n"
        f"    if len(CALLS) >= {call}: pytest.skip('not here')\n    return a @ b\n"
        "def wrong(a, b): return a @ b + 1\n"
        "@TARGET\ndef test_alone(perf): perf(Gemm(8, 8, 8), skips)\n"
        "@TARGET\ndef test_after(perf):\n    perf(Gemm(8, 8, 8), wrong)\n"
        "@TARGET\ndef test_both(perf):\n    perf(Gemm(8, 8, 8), wrong)\n    perf(Gemm(8, 8, 8), skips)\n"
    )
    outcome = suite.run("--perf-portable", "--perf-seconds=0.02")
    assert outcome.code == 1
    verdicts = [(case["test"].partition("::")[2], case["verdict"]) for case in outcome.cases]
    assert sorted(verdicts) == [(name, "WRONG") for name in ("test_after", "test_alone", "test_both", "test_both")]
    outcome.has("a side raised Skipped: not here")


def test_a_time_out_is_not_the_candidates_fault(suite: Suite) -> None:
    suite.write(
        "import time, torch\ndef slow(a, b):\n    time.sleep(20)\n    return a @ b\n"
        "@pytest.mark.timeout(1)\ndef test_it(perf): perf(Gemm(8, 8, 8), slow)\n"
    )
    (suite.path / "conftest.py").unlink()
    # pytest-timeout is off in a process in which any test has entered the debugger.
    outcome = suite.run("--perf-portable", "-p", "pytest_timeout", subprocess=True)
    assert outcome.code == 1
    assert [case["verdict"] for case in outcome.cases] == []
    outcome.has("Failed: Timeout (>1.0s) from pytest-timeout.")
    assert "WRONG" not in outcome.out
