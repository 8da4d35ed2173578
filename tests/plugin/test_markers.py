"""Markers: documented from their functions, checked when the tests are collected."""

from __future__ import annotations

import pytest

from .conftest import Suite


def test_help_comes_from_the_functions(suite: Suite) -> None:
    suite.run("--markers").has(
        "@pytest.mark.gpu(min_capability=None, min_memory=None): The test needs a GPU",
        "@pytest.mark.perf_target(against=None, at_least=1.0): The candidate must reach the fraction `at_least`",
        "@pytest.mark.correctness(against=None, deterministic=True): The answer must be right",
    )


@pytest.mark.parametrize(
    ("marker", "sentence"),
    [
        ("perf_target(atleast=0.9)", "@pytest.mark.perf_target has no argument 'atleast'; known are against, at_least"),
        (
            "perf_target('cublas')",
            "no positional arguments (was given ('cublas',)); name them: against, at_least",
        ),
        ("perf_target(at_least='0.9')", "at_least is '0.9'; it must be a number over 0"),
        ("perf_target(at_least=float('nan'))", "at_least is nan; it must be a number over 0"),
        ("perf_target(at_least=-1)", "at_least is -1; it must be a number over 0"),
        ("perf_target(against=3)", "against is 3; it must be a rival's name"),
        ("correctness(to='cublas')", "@pytest.mark.correctness has no argument 'to'; known are against"),
        ("correctness(against=len)", "it must be the name of a library"),
        (
            "gpu(capability=(8, 0))",
            "gpu has no argument 'capability'; known are min_capability, min_memory",
        ),
        ("gpu(min_capability=8.0)", "min_capability is 8.0; it must be a pair such as (8, 0)"),
        ("gpu(min_memory='16 GB')", "min_memory is '16 GB'; it must be a number of bytes over 0"),
    ],
)
def test_bad_arguments_are_collection_errors(suite: Suite, marker: str, sentence: str) -> None:
    suite.write(f"@pytest.mark.{marker}\ndef test_it(perf): pass\n")
    outcome = suite.run()
    assert outcome.code == 2
    outcome.has("test_it: ", sentence)


@pytest.mark.parametrize("mode", [(), ("--gpu",), ("--gpu", "-p", "xdist", "-n1")], ids=["plain", "gpu", "n1"])
def test_bad_arguments_of_a_marker_that_comes_late_are_an_error_of_that_test(
    suite: Suite, mode: tuple[str, ...]
) -> None:
    suite.write(
        "import unittest\n"
        "class Case(unittest.TestCase):\n"
        "    @pytest.mark.perf_target(least=1)\n"
        "    def test_old(self): pass\n"
        "def test_marked(perf): pass\n"
        "@TARGET\ndef test_it(perf): perf(Gemm(8, 8, 8), met)\n"
    )
    suite.add_hooks(
        "\n@pytest.hookimpl(trylast=True)\n"
        "def pytest_collection_modifyitems(items):\n"
        "    next(item for item in items if item.name == 'test_marked').add_marker(pytest.mark.launches(at_most=0))\n"
    )
    (suite.path / "perf_targets.toml").write_text("[portable]\n'*' = { perf_target = { at_least = 1 } }")
    outcome = suite.run(*mode, subprocess=True)
    assert outcome.code == 1
    assert outcome.junit == {"test_old": "error", "test_marked": "error", "test_it": "passed" if mode else "skipped"}
    outcome.has("@pytest.mark.perf_target has no argument 'least'", "@pytest.mark.launches: at_most is 0; it must be")


def test_a_misspelt_marker_is_a_collection_error(suite: Suite) -> None:
    suite.write("@pytest.mark.perf_taget(at_least=0.9)\ndef test_it(perf): perf(Gemm(8, 8, 8), missed)\n")
    outcome = suite.run()
    assert outcome.code == 2
    outcome.has("test_it: there is no @pytest.mark.perf_taget; did you mean perf_target?")


def test_a_marker_of_the_users_own_may_resemble_ours(suite: Suite) -> None:
    (suite.path / "pytest.ini").write_text("[pytest]\nmarkers =\n    gpus(n): as many as that\n    launch: ours\n")
    suite.write("@pytest.mark.gpus(2)\n@pytest.mark.launch\n@pytest.mark.slow\n@TARGET\ndef test_it(perf): pass\n")
    assert suite.run().code == 0


def test_bad_arguments_of_a_parameter_are_found_too(suite: Suite) -> None:
    suite.write(
        "class TestIt:\n"
        "    @pytest.mark.parametrize('n', [pytest.param(1, marks=pytest.mark.perf_target(least=1))])\n"
        "    def test_it(self, n, perf): pass\n"
    )
    outcome = suite.run("-p", "xdist", "-n1", subprocess=True)
    assert outcome.code in (1, 2)
    outcome.has("no argument 'least'; known are against, at_least")


def test_every_rival_is_measured_and_the_nearest_marker_of_a_rival_counts(suite: Suite) -> None:
    suite.write(
        "@pytest.mark.correctness(against='sdpa:math')\n"
        "@pytest.mark.perf_target(against='sdpa', at_least=1)\n"
        "@pytest.mark.perf_target(against='sdpa:flash', at_least=1)\n"
        "@pytest.mark.parametrize('n', [pytest.param(8, marks=pytest.mark.perf_target(against='sdpa', at_least=2))])\n"
        "def test_it(n, perf): perf(Gemm(n, 8, 8), met)\n"
    )
    outcome = suite.run("--gpu")
    assert {(case["rival"], case["target"]) for case in outcome.cases} == {("sdpa", 2.0), ("sdpa:flash", 1.0)}
    assert "correctness sdpa:math" in outcome.cases[0]["sentence"]


def test_a_card_that_is_too_small_skips_the_test_and_says_what_it_lacks(suite: Suite) -> None:
    suite.write(
        "@pytest.mark.gpu(min_capability=(10, 0))\ndef test_new(): pass\n"
        "@pytest.mark.gpu(min_memory=16 * 2**30)\ndef test_large(): pass\n"
        "@pytest.mark.gpu(min_capability=(9, 0), min_memory=8 * 2**30)\ndef test_fits(): pass\n"
        "@TARGET\ndef test_gate(perf): perf(Gemm(8, 8, 8), met)\n"
    )
    outcome = suite.run("--gpu", "-rs")
    assert outcome.code == 0
    assert [name for name, kind in outcome.junit.items() if kind == "passed"] == ["test_fits", "test_gate"]
    outcome.has("needs compute capability 10.0; Fake H200 has 9.0", "needs 16 GiB of memory; Fake H200 has 8")
