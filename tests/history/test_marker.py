"""The `regression` marker in a pytest run, against a history stored before."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

pytest.importorskip("asv", reason="asv is not installed")

from perfsuite.history import series
from perfsuite.history.asv_export import export
from perfsuite.history.machines import machine_of
from perfsuite.history.series_names import older_name_of
from perfsuite.record.case import Case
from perfsuite.record.store import read_record

from .conftest import Repository, case, make_repository

ROOT = Path(__file__).resolve().parents[2]
CONFTEST = """
import os
from perfsuite.clock.rounds import Round
from perfsuite.case.comparison import Comparison
from perfsuite.outcome import Reason, Verdict

def pytest_perfsuite_fingerprint(fingerprint):
    fingerprint["cpu"] = "Some CPU"

def pytest_perfsuite_compare(ask):
    ratio = float(os.environ["RATIO"])
    rounds = tuple(Round(1e-5 * ratio * (1 + 1e-4 * n), 1e-5, "candidate", n, None) for n in range(12))
    return Comparison(
        family="gemm", name="gemm 64", params={}, candidate=f"{ask.candidate.__module__}.mine", rival="cublas",
        verdict=Verdict.MET, reason=Reason.FAST_ENOUGH, sentence="fast", target=ask.at_least, speed=1 / ratio,
        speed_low=0.9 / ratio, speed_high=1.1 / ratio, candidate_seconds=1e-5 * ratio, rival_seconds=1e-5, clock="fake",
        rounds=rounds, cache=ask.settings.cache,
    )
"""
TEST = """
import pytest
from perfsuite import Gemm

@pytest.mark.regression(slower=0.1, drift=0.2)
@pytest.mark.perf_target(against="cublas", at_least=0.5)
def test_mine(perf):
    perf(Gemm(64, 64, 64), lambda a, b: a @ b)
"""
PORTABLE = {
    "gpu": None,
    "cuda": None,
    "cpu": "Some CPU",
    "case": "test_kernels.mine gemm gemm 64 vs cublas",
    "rival": "cublas",
}


@pytest.fixture
def stored(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Repository:
    """A repository with a suite and four measured commits, and one that is not measured yet."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    for name in ("PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT"):
        monkeypatch.delenv(name, raising=False)
    made = make_repository(pytester.path)
    files = {"conftest.py": CONFTEST, "test_kernels.py": TEST, ".gitignore": "*.jsonl\n__pycache__/\n.perfsuite/\n"}
    made.commit("suite", **files)
    for number in range(4):
        commit = made.commit(f"change {number}")
        one = case(commit=commit, test="test_kernels.py::test_mine", **PORTABLE)
        export([one], pytester.path / "benchmarks_asv" / "results", pytester.path)
    made.commit("new")
    return made


def gate(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, ratio: float) -> tuple[int, Case]:
    monkeypatch.setenv("RATIO", str(ratio))
    record = pytester.path / "record.jsonl"
    done = pytester.runpytest_inprocess("-p", "perfsuite.plugin", "--perf-portable", f"--perf-record={record}")
    cases = read_record(record)
    (looked,) = [one for one in cases if one.aspect == "regression"]
    assert len(cases) == 2
    assert machine_of(looked)["flavour"] == "portable"
    return int(done.ret), looked


def test_a_case_that_got_slower_fails(
    stored: Repository, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, looked = gate(pytester, monkeypatch, 1.25 * 1.5)
    assert code == 1
    assert (looked.verdict, looked.reason) == ("MISSED", "regressed")
    assert "more than the recent commits" in looked.sentence


def test_a_case_as_fast_as_before_passes(
    stored: Repository, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, looked = gate(pytester, monkeypatch, 1.25)
    assert code == 0
    assert "4 commits stored" in looked.sentence


def test_a_slow_down_that_cannot_be_told_is_undecided_and_said_on_screen(
    stored: Repository, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # Two stored commits, measured on a machine so noisy that a kernel four times slower is within the noise.
    shutil.rmtree(pytester.path / "benchmarks_asv")
    wild = [1e-5 * 4.0 ** (number % 7 - 3) for number in range(12)]
    columns = {"candidate_seconds": wild, "rival_seconds": [1e-5] * 12, "first": ["rival"] * 12, "setup": [0] * 12}
    for commit in stored.commits[1:3]:
        one = case(commit=commit, test="test_kernels.py::test_mine", samples=columns, **PORTABLE)
        export([one], pytester.path / "benchmarks_asv" / "results", pytester.path)
    code, looked = gate(pytester, monkeypatch, 1.25 * 4)
    assert code == 20
    assert (looked.verdict, looked.reason) == ("UNDECIDED", "too-noisy")
    assert looked.sentence.startswith("it cannot be told if the case got slower by 10.0%: ")
    assert f"UNDECIDED test_kernels.py::test_mine: {looked.sentence}" in capsys.readouterr().out


def test_a_case_without_a_history_is_said_on_screen(
    stored: Repository, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree(pytester.path / "benchmarks_asv")
    code, _ = gate(pytester, monkeypatch, 1.25)
    assert code == 0
    assert "warning: regression compared nothing: the history holds no result of this case" in capsys.readouterr().out


def test_results_under_the_older_name_are_the_cases_history_too(
    stored: Repository, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.rmtree(pytester.path / "benchmarks_asv")
    monkeypatch.setattr(series, "name_of", lambda case, order: older_name_of(case))
    for commit in stored.commits[1:5]:
        one = case(commit=commit, test="test_kernels.py::test_mine", **PORTABLE)
        export([one], pytester.path / "benchmarks_asv" / "results", pytester.path)
    code, looked = gate(pytester, monkeypatch, 1.25 * 1.5)
    assert (code, looked.reason) == (1, "regressed")


def test_the_series_of_a_renamed_file_goes_on(
    stored: Repository, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored.git("mv", "test_kernels.py", "test_renamed.py")
    stored.commit("renamed")
    code, looked = gate(pytester, monkeypatch, 1.25 * 1.5)
    assert (code, looked.reason) == (1, "regressed")
    assert "4 commits stored" in looked.sentence


def test_a_corrupt_history_fails_closed(
    stored: Repository, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = next((pytester.path / "benchmarks_asv" / "results" / "cpu-some-cpu").glob("*virtualenv*.json"))
    file.write_text("{")
    code, looked = gate(pytester, monkeypatch, 1.25)
    assert code == 1
    assert file.name in looked.sentence


def test_the_markers_numbers_are_checked(pytester: pytest.Pytester, stored: Repository) -> None:
    (pytester.path / "test_kernels.py").write_text(TEST.replace("slower=0.1", "slower=3"))
    done = pytester.runpytest_inprocess("-p", "perfsuite.plugin")
    done.stdout.fnmatch_lines(["*slower is 3; it must be a share between 0 and 1*"])
