"""A suspect is measured again by its test in a process of its own, and the rounds of that process come back."""

from __future__ import annotations

import pytest

from .conftest import Suite

# The compare hook of the outer process asks for a second measurement; that of the fresh process gives scripted rounds.
HOOKS = """
import dataclasses
from perfsuite.clock.rounds import Round
fake = pytest_perfsuite_compare

def pytest_perfsuite_compare(ask):
    made, remeasure = fake(ask), ask.remeasure
    if "PERFSUITE_FRESH" in os.environ:
        assert remeasure is None and ask.settings.seed == 8 and ask.settings.distribution == "uniform"
        rounds = (Round(1e-5, 2e-5 + ask.problem.m, "rival", 0, 1.9e9), Round(1e-5, 3e-5, "candidate", 1, None))
        return dataclasses.replace(made, rounds=rounds, discarded=(Round(1.0, 1.0, "rival", 0, None, "hot"),))
    if ask.at_least is None:
        assert remeasure is None
        return made
    return dataclasses.replace(made, rounds=tuple(remeasure()), retries=1)
"""


@pytest.mark.parametrize("flag", ["--gpu", "--perf-portable"])
def test_rounds_of_a_fresh_process_come_back(suite: Suite, flag: str) -> None:
    suite.add_hooks(HOOKS)
    suite.write(
        "@TARGET\n@pytest.mark.perf_target(against='cublas:other', at_least=0.5)\n"
        "@pytest.mark.parametrize('n', [3, 4], ids=['three', 'four [x]'])\n"
        "def test_it(n, perf): perf(Gemm(n, 8, 8), met)\n"
        "def test_only_checked(perf): perf(Gemm(9, 8, 8), met)\n"
    )
    (suite.path / "pytest.ini").write_text("[pytest]\naddopts = -k test -m 'not slow' --junitxml=kept.xml\n")
    outcome = suite.run(
        flag, "--perf-seed=7", "--perf-distribution=uniform", "-k", "it", "-p", "no:cacheprovider", subprocess=True
    )
    assert outcome.code == 0, outcome.out
    found = {(case["params"]["m"], case["rival"]): case["samples"] for case in outcome.cases}
    assert set(found) == {(3, "cublas"), (3, "cublas:other"), (4, "cublas"), (4, "cublas:other")}
    assert found[4, "cublas"] == {
        "candidate_seconds": [1e-5, 1e-5],
        "rival_seconds": [4.00002, 3e-5],
        "first": ["rival", "candidate"],
        "setup": [0, 1],
        "sm_clock_hz": [1.9e9, None],
    }


def test_where_the_fresh_process_fails_there_are_no_rounds(suite: Suite) -> None:
    suite.add_hooks(HOOKS + "\nif 'PERFSUITE_FRESH' in os.environ: raise RuntimeError('no')\n")
    suite.write("@TARGET\ndef test_it(perf): perf(Gemm(8, 8, 8), met)\n")
    outcome = suite.run("--gpu", subprocess=True)
    assert outcome.code == 0, outcome.out
    assert outcome.cases[0]["samples"] == {}


def test_rounds_of_wrong_calls_in_the_fresh_process_do_not_count(suite: Suite) -> None:
    suite.add_hooks(
        HOOKS
        + """
from perfsuite.outcome import Reason, Verdict
rounds = pytest_perfsuite_compare

def pytest_perfsuite_compare(ask):
    found = rounds(ask)
    if "PERFSUITE_FRESH" not in os.environ:
        return found
    return dataclasses.replace(found, verdict=Verdict.WRONG, reason=Reason.INACCURATE)
"""
    )
    suite.write("@TARGET\ndef test_it(perf): perf(Gemm(8, 8, 8), met)\n")
    outcome = suite.run("--gpu", "--perf-seed=7", "--perf-distribution=uniform", subprocess=True)
    assert outcome.code == 0, outcome.out
    assert outcome.cases[0]["samples"] == {}


def test_a_worker_measures_afresh_outside_xdist(suite: Suite) -> None:
    suite.add_hooks(HOOKS)
    suite.write("@TARGET\ndef test_it(perf): perf(Gemm(8, 8, 8), met)\n")
    outcome = suite.run("--gpu", "-p", "xdist", "-n1", "--perf-seed=7", "--perf-distribution=uniform", subprocess=True)
    assert outcome.code == 0, outcome.out
    assert outcome.cases[0]["samples"]["setup"] == [0, 1]


def test_a_fresh_process_measures_what_comes_before_its_call_and_the_suspect(suite: Suite) -> None:
    """The suspect counts as examined, and the test ends behind it; its other rivals are left out."""
    suite.add_hooks("""
import dataclasses
from perfsuite.clock.rounds import Round
fake = pytest_perfsuite_compare

def pytest_perfsuite_compare(ask):
    made, remeasure = fake(ask), ask.remeasure
    with open("asked", "a") as asked:
        print(os.environ.get("PERFSUITE_FRESH"), ask.problem.m, ask.against, ask.examined, file=asked)
    if "PERFSUITE_FRESH" in os.environ:
        assert remeasure is None
        return dataclasses.replace(made, rounds=(Round(1e-5, ask.problem.m + len(ask.against), "rival", 0, None),))
    wanted = ask.problem.m == 4 and ask.against == "cublas:other"
    return dataclasses.replace(made, rounds=tuple(remeasure()), retries=1) if wanted else made
""")
    suite.write(
        "@pytest.mark.perf_target(against='cublas:other', at_least=0.5)\n@TARGET\n"
        "def test_it(perf):\n"
        "    assert perf(Gemm(3, 8, 8), met).verdict == 'MET'\n"
        "    perf(Gemm(4, 8, 8), met)\n"
        "    perf(Gemm(5, 8, 8), met)\n"
    )
    outcome = suite.run("--gpu", subprocess=True)
    assert outcome.code == 0, outcome.out
    order = [case["rival"] for case in outcome.cases][:2]
    asked = (suite.path / "asked").read_text().splitlines()
    number = 2 + order.index("cublas:other")
    fresh = [line.split(maxsplit=1)[1] for line in asked if line.startswith(f"{number} ")]
    assert fresh == [*(f"3 {rival} False" for rival in order), "4 cublas:other True"]
    assert [line for line in asked if line.startswith("None")] == [
        f"None {m} {rival} False" for m in (3, 4, 5) for rival in order
    ]
    (found,) = (case for case in outcome.cases if (case["params"]["m"], case["rival"]) == (4, "cublas:other"))
    assert found["samples"]["rival_seconds"] == [4 + len("cublas:other")]
