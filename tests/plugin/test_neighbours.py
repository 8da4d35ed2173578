"""Gates beside other plugins: verdicts, record, exit code and what the other plugin is for stay as they are."""

from __future__ import annotations

import importlib.util
import os

import pytest

from .conftest import Suite

TESTS = """
@TARGET
def test_met(perf): perf(Gemm(8, 8, 8), met)

@TARGET
def test_missed(perf): perf(Gemm(8, 8, 8), missed)

@pytest.mark.gpu
def test_wrong(perf): perf(Gemm(8, 8, 8), wrong)

@TARGET
def test_undecided(perf): perf(Gemm(8, 8, 8), undecided)

def test_ordinary(): pass

def test_broken(): assert 1 + 1 == 3
"""
HYPOTHESIS = """
from hypothesis import given, settings, strategies

@settings(max_examples=3)
@given(number=strategies.integers())
def test_drawn(number): assert number == number
"""
ASYNC = """
@pytest.mark.asyncio
async def test_awaited(): pass
"""
BENCHMARK = """
def test_benchmarked(benchmark): benchmark.pedantic(met, rounds=2)
"""
NEIGHBOURS: dict[str, tuple[str, tuple[str, ...], str, tuple[str, ...]]] = {
    "rerunfailures": ("pytest_rerunfailures", ("-p", "rerunfailures", "--reruns=1"), "", ("rerun",)),
    "timeout": ("pytest_timeout", ("-p", "timeout", "--timeout=60"), "", ("timeout: 60",)),
    "xdist": ("xdist", ("-p", "xdist", "-n2"), "", ("2 workers",)),
    "benchmark": ("pytest_benchmark", ("-p", "pytest_benchmark"), BENCHMARK, ("test_benchmarked",)),
    "hypothesis": ("hypothesis", ("-p", "_hypothesis_pytestplugin"), HYPOTHESIS, ()),
    "randomly": ("pytest_randomly", ("-p", "randomly"), "", ("--randomly-seed=",)),
    "asyncio": ("pytest_asyncio", ("-p", "asyncio"), ASYNC, ("asyncio",)),
    "cov": ("pytest_cov", ("-p", "pytest_cov", "--cov=."), "", ("test_kernels.py",)),
    "html": ("pytest_html", ("-p", "metadata", "-p", "html", "--html=page.html"), "", ("page.html",)),
    "sugar": ("pytest_sugar", ("-p", "sugar"), "", ()),
    "instafail": ("pytest_instafail", ("-p", "instafail", "--instafail"), "", ("test_broken",)),
}
"""Plugin -> its module, the words that load it, further tests, and what the run must show of it."""


SWITCH = "PERFSUITE_WHOLE"
ALWAYS = ("timeout",)


@pytest.mark.parametrize("name", NEIGHBOURS)
def test_verdicts_are_the_same_beside(name: str, suite: Suite) -> None:
    module, words, more, shown = NEIGHBOURS[name]
    if SWITCH not in os.environ and name not in ALWAYS:
        pytest.skip(f"`nox -s nightly` tries all neighbours: it sets {SWITCH}")
    assert importlib.util.find_spec(module) is not None, f"the dependency group neighbours installs pytest-{name}"
    suite.write(TESTS + more)
    outcome = suite.run("--gpu", *words, subprocess=True)
    assert outcome.code == 1, outcome.out
    verdicts = {str(case["test"]).partition("::")[2]: case["verdict"] for case in outcome.cases}
    assert verdicts.pop("test_benchmarked", "MET") == "MET"
    expected = {"test_met": "MET", "test_missed": "MISSED", "test_wrong": "WRONG", "test_undecided": "UNDECIDED"}
    assert verdicts == expected, outcome.out
    wanted = {"test_met": "passed", "test_ordinary": "passed", "test_drawn": "passed", "test_awaited": "passed"}
    wanted |= dict.fromkeys(("test_missed", "test_wrong", "test_undecided", "test_broken"), "failed")
    got = {test: end for test, end in outcome.junit.items() if test in wanted}
    assert got == {test: wanted[test] for test in got}
    assert set(expected) | {"test_ordinary", "test_broken"} <= set(got)
    outcome.has("perfsuite: gates", "1 missed", "1 wrong", "1 undecided", "assert (1 + 1) == 3", *shown)
