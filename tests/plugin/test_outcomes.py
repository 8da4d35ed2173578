"""Verdicts become outcomes and exit codes, the same without xdist, with -n0 and with -n2."""

from __future__ import annotations

import pytest

from .conftest import Outcome, Suite

MODES = {
    "plain": ["-p", "no:xdist"],
    "n0": ["-p", "xdist", "-n0"],
    "n2": ["-p", "xdist", "-n2"],
}
ONE_OF_EACH = """
@TARGET
def test_met(perf): perf(Gemm(8, 8, 8), met)

@TARGET
def test_missed(perf): perf(Gemm(8, 8, 8), missed)

@TARGET
def test_wrong(perf): perf(Gemm(8, 8, 8), wrong)

@TARGET
def test_undecided(perf): perf(Gemm(8, 8, 8), undecided)

def test_checked(perf): perf(Gemm(8, 8, 8), met)

@TARGET
def test_forgets(perf): pass

@TARGET
def test_several(perf):
    perf(Gemm(8, 8, 8), met)
    perf(Gemm(16, 8, 8), undecided)
    perf(Gemm(32, 8, 8), missed)

def test_ordinary(): pass
"""


def single(candidate: str) -> str:
    return f"@TARGET\ndef test_it(perf): perf(Gemm(8, 8, 8), {candidate})\ndef test_ordinary(): pass\n"


def test_outcomes_are_the_same_in_every_mode(suite: Suite) -> None:
    suite.write(ONE_OF_EACH)
    outcomes = {name: suite.run("--gpu", *arguments, subprocess=True) for name, arguments in MODES.items()}
    for outcome in outcomes.values():
        assert outcome.code == 1
        assert outcome.junit == {
            "test_met": "passed",
            "test_missed": "failed",
            "test_wrong": "failed",
            "test_undecided": "failed",
            "test_checked": "passed",
            "test_forgets": "failed",
            "test_several": "failed",
            "test_ordinary": "passed",
        }
        outcome.has("2 missed", "1 wrong", "1 undecided", "3 passed", "1 failed")
    plain = outcomes["plain"]
    assert len(plain.cases) == 8
    for name, other in outcomes.items():
        assert other.properties == plain.properties
        own = {"workers": 0, "seed": 0}
        assert [{**case, **own} for case in other.cases] == [{**case, **own} for case in plain.cases]
        assert {case["workers"] for case in other.cases} == {2 if name == "n2" else 1}
        assert_tables_equal(other, plain)


def assert_tables_equal(one: Outcome, other: Outcome) -> None:
    def table(outcome: Outcome) -> list[str]:
        lines = outcome.out.splitlines()
        start = next(place for place, line in enumerate(lines) if line.startswith("test  "))
        return sorted(lines[start : start + 11])  # the head, five rows that are not met, five sentences

    assert table(one) == table(other)


def test_junit_carries_the_figures(suite: Suite) -> None:
    suite.write(ONE_OF_EACH)
    properties = suite.run("--gpu").properties
    assert properties["test_missed"] == {
        "perf_case": "kernels.missed gemm 8x8x8 float16 vs cublas",
        "perf_rival": "cublas",
        "perf_verdict": "MISSED",
        "perf_reason": "too-slow",
        "perf_speed": "0.5",
        "perf_speed_low": "0.49",
        "perf_speed_high": "0.51",
        "perf_target": "0.9",
        "perf_candidate_seconds": "1e-05",
        "perf_rival_seconds": "5e-06",
    }
    assert properties["test_several"]["perf_3_verdict"] == "MISSED"
    assert properties["test_ordinary"] == {}


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
def test_only_undecided_has_an_exit_code_of_its_own(suite: Suite, mode: list[str]) -> None:
    suite.write(single("undecided"))
    assert suite.run("--gpu", *mode, subprocess="-n2" in mode).code == 20


@pytest.mark.parametrize(
    ("tests", "code"),
    [
        (single("met"), 0),
        (single("missed"), 1),
        (single("wrong"), 1),
        (single("undecided") + "def test_broken(): assert 0", 1),
        (single("undecided") + "@TARGET\ndef test_slow(perf): perf(Gemm(8, 8, 8), missed)", 1),
        ("def test_broken(): assert 0", 1),
        ("def test_ordinary(): pass", 21),
        ("", 21),
        ("@pytest.mark.gpu(min_capability=(99, 0))\n" + single("met"), 21),
    ],
    ids=[
        "met",
        "missed",
        "wrong",
        "undecided and broken",
        "undecided and missed",
        "broken",
        "no gate",
        "no test",
        "skipped",
    ],
)
def test_exit_code_of_mixtures(suite: Suite, tests: str, code: int) -> None:
    suite.write(tests)
    assert suite.run("--gpu").code == code


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
def test_no_device_fails_closed_with_one_sentence(
    suite: Suite, monkeypatch: pytest.MonkeyPatch, mode: list[str]
) -> None:
    monkeypatch.setenv("FAKE_CARDS", "0")
    suite.write(single("met"))
    outcome = suite.run("--gpu", *mode, subprocess="-n2" in mode)
    assert outcome.code == 21
    assert outcome.junit == {"test_it": "error", "test_ordinary": "passed"}
    outcome.has("nothing was measured (no-device): --gpu asks for a GPU, but this machine has none")
    assert outcome.cases == []


def test_an_ordinary_failure_outweighs_a_missing_device(suite: Suite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_CARDS", "0")
    suite.write(single("met") + "def test_broken(): assert 0")
    assert suite.run("--gpu").code == 1


def test_a_build_without_cuda_fails_closed(suite: Suite) -> None:
    suite.write(single("met"))
    suite.add_hooks("\ndef pytest_perfsuite_device_check(): return 'the kernels are a portable build'\n")
    outcome = suite.run("--gpu")
    assert outcome.code == 21
    outcome.has("nothing was measured (portable-build): --gpu asks for a GPU, but the kernels are a portable build")


def test_pytest_keeps_its_own_codes(suite: Suite) -> None:
    suite.write(single("met"))
    assert suite.run("-k", "nothing-like-it").code == 5
    assert suite.run("--gpu", "-k", "nothing-like-it").code == 21
    assert suite.run("--gpu", "--collect-only").code == 0
    assert suite.run("--gpu", "no-such-file.py").code == 4
    suite.write("def broken(:", name="test_syntax.py")
    assert suite.run("--gpu").code == 2


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
def test_where_every_gate_is_skipped_nothing_was_measured(suite: Suite, mode: list[str]) -> None:
    suite.write("@pytest.mark.gpu(min_capability=(99, 0))\n" + single("met"))
    outcome = suite.run("--gpu", *mode, subprocess="-n2" in mode)
    assert outcome.code == 21
    outcome.has("(nothing-collected): --gpu asks for gates, but all gated tests (1) were skipped")


def test_stops_at_the_first_miss(suite: Suite) -> None:
    suite.write(single("missed") + "@TARGET\ndef test_zz(perf): perf(Gemm(9, 9, 9), met)")
    outcome = suite.run("--gpu", "-x")
    assert outcome.code == 1
    assert [case["verdict"] for case in outcome.cases] == ["MISSED"]
    outcome.has("1 missed")


def test_expected_failure_stays_pytests_own_affair(suite: Suite) -> None:
    suite.write("@pytest.mark.xfail(reason='slow so far')\n" + single("missed"))
    outcome = suite.run("--gpu")
    assert outcome.code == 0
    outcome.has("1 xfailed")
    assert [case["verdict"] for case in outcome.cases] == ["MISSED"]


def test_an_exception_after_a_verdict_is_shown_as_itself(suite: Suite) -> None:
    suite.write("@TARGET\ndef test_it(perf):\n    perf(Gemm(8, 8, 8), undecided)\n    assert 'own' == 'check'")
    outcome = suite.run("--gpu")
    assert outcome.code == 1
    outcome.has("assert 'own' == 'check'", "1 failed", "UNDECIDED")


def test_perf_returns_the_comparison(suite: Suite) -> None:
    suite.write(
        "@TARGET\ndef test_it(perf):\n"
        "    made = perf(Gemm(8, 8, 8), met)\n"
        "    assert made.ok and made.speed == 1.25 and perf.comparisons == (made,)"
    )
    assert suite.run("--gpu").code == 0


def test_without_gpu_everything_that_needs_one_is_skipped_and_says_why(suite: Suite) -> None:
    suite.write(ONE_OF_EACH + "\n@pytest.mark.gpu\ndef test_bare(): assert 0\n")
    outcome = suite.run("-rs")
    assert outcome.code == 0
    assert [name for name, kind in outcome.junit.items() if kind == "passed"] == ["test_ordinary"]
    outcome.has("needs a GPU: run pytest --gpu")
    assert "perfsuite: gates" not in outcome.out
    assert not (suite.path / ".perfsuite").exists()
