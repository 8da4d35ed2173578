"""`perf_sizes` declares two sets of a parameter; --perf-ci takes the second."""

from __future__ import annotations

import re

import pytest

from perfsuite.pytest_plugin.marks import help_lines

from .conftest import Suite

TESTS = """
SIZES = pytest.mark.perf_sizes("n", full=[8, 16, 32], ci=[64])

@SIZES
@TARGET
def test_plain(n, perf): perf(Gemm(n, 8, 8), met)

@pytest.mark.parametrize("kind", ["a", "b"])
@pytest.mark.perf_sizes(names="m, k", full=[(1, 2), pytest.param(3, 4, id="large")], ci=[(5, 6)])
@pytest.mark.perf_sizes("n", full=[7, 8], ci=[9], ids=lambda n: f"n{n}")
@TARGET
def test_nested(m, n, k, kind, perf): perf(Gemm(m, n, k), met)

@SIZES
class TestClass:
    @TARGET
    def test_of_the_class(self, n, perf): perf(Gemm(n, 8, 8), met)

    @pytest.mark.perf_sizes("n", full=[1], ci=[2])
    @TARGET
    def test_nearest(self, n, perf): perf(Gemm(n, 8, 8), met)

@pytest.mark.perf_sizes("n", full=[3, 4], ci=[5])
def test_ordinary(n): assert n in (3, 4, 5)
"""
FULL = {
    *("test_plain[8]", "test_plain[16]", "test_plain[32]"),
    *(f"test_nested[n{n}-{mk}-{kind}]" for n in (7, 8) for mk in ("1-2", "large") for kind in "ab"),
    *("test_of_the_class[8]", "test_of_the_class[16]", "test_of_the_class[32]", "test_nearest[1]"),
    *("test_ordinary[3]", "test_ordinary[4]"),
}
SMALL = {
    *("test_plain[64]", "test_nested[n9-5-6-a]", "test_nested[n9-5-6-b]", "test_of_the_class[64]"),
    *("test_nearest[2]", "test_ordinary[5]"),
}


def parts_of(tests: set[str]) -> set[tuple[str, ...]]:
    """The words of each name; the order of independent parameters in an id is pytest's own affair."""
    return {tuple(sorted(re.split(r"[-\[\]]", name))) for name in tests}


@pytest.mark.parametrize(("words", "expected"), [((), FULL), (("--perf-ci",), SMALL)], ids=["full", "ci"])
def test_the_set_that_is_asked_for(suite: Suite, words: tuple[str, ...], expected: set[str]) -> None:
    suite.write(TESTS)
    found = suite.run("--gpu", *words)
    assert found.code == 0
    assert parts_of(set(found.junit)) == parts_of(expected)
    gated = sum("ordinary" not in name for name in expected)
    assert {case.sentence.rpartition(", ")[2] for case in found.records} == {f"{gated} cases)"}


def test_the_ini_option_and_runs_without_gates(suite: Suite) -> None:
    suite.write(TESTS)
    (suite.path / "pytest.ini").write_text("[pytest]\nperf_ci = true\n")
    assert parts_of(set(suite.run().junit)) == parts_of(SMALL)
    assert parts_of(set(suite.run("-o", "perf_ci=false").junit)) == parts_of(FULL)


BAD = {
    "unknown": ('"n", full=[1], ci=[1], sizes=[2]', "has no argument 'sizes'; known are names, full, ci, ids"),
    "missing": ('"n", full=[1]', "needs ci"),
    "two positional": ('"n", [1], ci=[1]', "takes only names as a positional argument"),
    "twice": ('"n", names="n", full=[1], ci=[1]', "got names twice"),
    "empty": ('"n", full=[], ci=[1]', "full is []; it must be a list with at least one value"),
    "text": ('"n", full=[1], ci="12"', "ci is '12'; it must be a list"),
    "name": ('"n-1", full=[1], ci=[1]', "names is 'n-1'; it must name parameters of the test"),
    "ids": ('"n", full=[1], ci=[1], ids=["a"]', "ids is ['a']; it must be a function of a value"),
    "no such argument": ('"size", full=[1], ci=[1]', "names 'size'; the test has no such argument"),
    "a parameter already": ('"k", full=[1], ci=[1]', "duplicate parametrization of 'k'"),
    "too few values": ('"n, perf", full=[(1,)], ci=[(1, 2)]', "must be equal to the number of"),
}


@pytest.mark.parametrize(("arguments", "sentence"), BAD.values(), ids=BAD)
def test_a_bad_marker_is_a_collection_error(suite: Suite, arguments: str, sentence: str) -> None:
    suite.write(
        f"@pytest.mark.parametrize('k', [1])\n@pytest.mark.perf_sizes({arguments})\ndef test_it(n, k, perf): ..."
    )
    found = suite.run()
    assert found.code == 2
    assert sentence in " ".join(found.out.split())
    assert "INTERNALERROR" not in found.out


def test_it_is_listed() -> None:
    (line,) = (line for line in help_lines() if line.startswith("perf_sizes("))
    assert line.startswith("perf_sizes(names, full, ci, ids=None): The test runs once for each value in `full`")


def test_a_suspect_keeps_its_size(suite: Suite) -> None:
    suite.write(TESTS)
    suite.add_hooks(
        "\ndef pytest_collection_finish(session):\n"
        "    from perfsuite.pytest_plugin.fresh import options_of\n"
        "    print(options_of(session.config))\n"
    )
    assert "'--perf-ci'" in suite.run("--gpu", "--perf-ci", "-s").out
    assert "'--perf-ci'" not in suite.run("--gpu", "-s").out
