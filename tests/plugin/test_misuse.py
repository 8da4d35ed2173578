"""A wrong call of `perf` shows the test's line and one sentence."""

from __future__ import annotations

import sys

import pytest

from .conftest import Suite


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        ("perf()", "TypeError: perf takes (problem, candidate) or (candidate, args=...); it was given 0 arguments"),
        ("perf(met)", "TypeError: perf(candidate) needs args=..., or write perf(problem, candidate)"),
        ("perf(met, Gemm(8, 8, 8))", "takes an instance of a subclass of perfsuite.Problem first"),
        ("perf((1, 2), met)", "TypeError: the problem is a tuple; perf(problem, candidate) takes an instance"),
        ("perf(Gemm, met)", "TypeError: the problem is the class Gemm; give an instance of it: Gemm(...)"),
        ("perf(Gemm(0, 8, 8), met)", "ValueError: m is 0; it must be a whole number of at least 1"),
        ("perf(met, args=(1,), kwargs=[1])", "TypeError: kwargs is list; it must map names to arguments"),
        ("perf(met, args=lambda: (1,))", "a callable must take one argument, a torch.Generator"),
        ("perf(met, args=(1,), against='torch.sofmax')", "ValueError: against is 'torch.sofmax', and there is no such"),
        ("perf(met, args=(1,), label='a\\nb')", "ValueError: label is 'a\\nb'; it stands in tables, so it must be one"),
    ],
)
def test_a_wrong_call_is_one_sentence_at_the_line_of_the_test(suite: Suite, call: str, sentence: str) -> None:
    suite.write(f"def test_it(perf):\n    {call}\n")
    outcome = suite.run("--gpu")
    assert outcome.code == 1
    outcome.has(f">       {call}", sentence)
    assert "/perfsuite/" not in outcome.out


def test_it_needs_no_terminal(suite: Suite) -> None:
    suite.write("def test_it(perf): perf(Gemm, met)\n")
    outcome = suite.run("--gpu", "-p", "no:terminal")
    assert (outcome.code, outcome.junit) == (1, {"test_it": "failed"})


def test_full_trace_shows_the_way_there(suite: Suite) -> None:
    suite.write("def test_it(perf): perf(Gemm, met)\n")
    assert "perfsuite/pytest_plugin/perf.py" in suite.run("--gpu", "--full-trace").out


def test_what_nobody_expected_is_shown_whole(suite: Suite) -> None:
    suite.add_hooks("\ndef pytest_perfsuite_fingerprint(): raise RuntimeError('a broken hook')\n")
    suite.write("def test_it(perf): perf(Gemm(8, 8, 8), met)\n")
    suite.run("--gpu").has("perfsuite/pytest_plugin/measure.py", "RuntimeError: a broken hook")


def test_a_portable_run_without_torch_measures_nothing_and_says_so(
    suite: Suite, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite.write("@TARGET\ndef test_it(perf): perf(Gemm(8, 8, 8), met)\n")
    monkeypatch.setitem(sys.modules, "torch", None)
    outcome = suite.run("--perf-portable")
    assert outcome.code == 21
    outcome.has("nothing was measured (no-device): --perf-portable measures with torch, which is not installed")
