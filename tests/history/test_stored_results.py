"""The history as it is stored: read back in git's order, of the same card alone, with what commits accepted."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("asv", reason="asv is not installed")

from perfsuite.history.asv_export import export
from perfsuite.history.commits import HistoryError
from perfsuite.history.steps_and_drift import Kind, Rule
from perfsuite.history.stored_results import acceptances, findings_of
from perfsuite.verdict.noise import Noise

from .conftest import Repository, case, make_repository

NOISE = Noise(setup=0.001, process=0.001, source="made up")


def history(repository: Repository, results: Path, count: int = 6, **changes: Any) -> None:
    for number in range(count):
        commit = repository.commit(f"change {number}")
        export([case(commit=commit, **changes)], results, repository.path)


def newest(repository: Repository, results: Path, ratio: float) -> tuple[Any, list[str]]:
    last = case(commit=repository.commits[-1], ratio=ratio, seed="new")
    findings, idle = findings_of(last, results, repository.path, noise=NOISE, rule=Rule())
    return findings[-1], idle


@pytest.fixture
def results(tmp_path: Path) -> Path:
    return tmp_path / "results"


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return make_repository(tmp_path / "repository")


def test_a_slower_commit_is_found_against_the_stored_ones(repository: Repository, results: Path) -> None:
    history(repository, results)
    repository.commit("slower")
    finding, _ = newest(repository, results, 1.25 * 1.05)
    assert finding.kind is Kind.STEP
    assert finding.commit == repository.commits[-1]
    assert finding.anchor == repository.commits[0]
    finding, _ = newest(repository, results, 1.25)
    assert finding.kind is Kind.SAME


def test_another_cards_history_does_not_count(repository: Repository, results: Path) -> None:
    history(repository, results, gpu="NVIDIA A100")
    repository.commit("first on this card")
    finding, _ = newest(repository, results, 1.25 * 1.5)
    assert finding.kind is Kind.FIRST


def test_one_line_in_the_commit_accepts(repository: Repository, results: Path) -> None:
    history(repository, results)
    repository.commit('slower\n\nPerf-Accept: "kernels.gemm 64*" pays for masks\n')
    finding, idle = newest(repository, results, 1.25 * 1.05)
    assert finding.kind is Kind.ACCEPTED
    assert "pays for masks" in finding.sentence
    assert idle == []


def test_what_an_unmeasured_commit_accepts_counts_for_the_next(repository: Repository, results: Path) -> None:
    history(repository, results)
    repository.commit("slower\n\nPerf-Accept: *gemm* pays for masks\n")
    repository.commit("not about speed")
    finding, _ = newest(repository, results, 1.25 * 1.05)
    assert finding.kind is Kind.ACCEPTED


def test_an_acceptance_of_another_case_does_not_count(repository: Repository, results: Path) -> None:
    history(repository, results)
    repository.commit("slower\n\nPerf-Accept: *attention* pays for masks\n")
    finding, _ = newest(repository, results, 1.25 * 1.05)
    assert finding.kind is Kind.STEP


def test_an_unused_acceptance_is_reported(repository: Repository, results: Path) -> None:
    history(repository, results)
    commit = repository.commit("feared\n\nPerf-Accept: *gemm* pays for masks\n")
    _, idle = newest(repository, results, 1.25)
    assert idle == [f"{commit[:10]} accepts a slow-down that is not there: pays for masks"]


def test_a_trailer_without_a_reason_accepts_nothing(repository: Repository) -> None:
    repository.commit("one\n\nPerf-Accept: *gemm*\n")
    repository.commit('two\n\nPerf-Accept: *gemm* because\nPerf-Accept: "a b" for c\n')
    found = acceptances(repository.path, repository.commits)
    assert [(one.glob, one.reason) for one in found] == [("*gemm*", "because"), ("a b", "for c")]


def test_a_corrupt_file_is_named(repository: Repository, results: Path) -> None:
    history(repository, results, count=1)
    (results / "nvidia-h200" / "cut-off.json").write_text("{")
    repository.commit("next")
    with pytest.raises(HistoryError, match=r"cut-off\.json is not a result file"):
        newest(repository, results, 1.25)


def test_a_forged_separator_in_a_message_breaks_nothing(repository: Repository) -> None:
    commit = repository.commit("forged\n\nPerf-Accept: * because\x01deadbeef\nPerf-Accept: *a* known")
    later = repository.commit("plain\n\nPerf-Accept: *gemm* pays for masks")
    found = acceptances(repository.path, [commit, later])
    assert [(one.commit, one.glob) for one in found] == [(commit, "*"), (commit, "*a*"), (later, "*gemm*")]
    assert found[0].reason.startswith("because")


def test_a_second_look_up_reads_no_result_file_again(repository: Repository, results: Path) -> None:
    """Past 1,024 result files a cache that was walked in order forgot each of them before its next use."""
    history(repository, results, count=2)
    folder = results / "nvidia-h200"
    content = json.loads(next(folder.glob("*-virtualenv*.json")).read_text())
    for number in range(1100):
        commit = f"{number:040x}"
        (folder / f"{commit[-8:]}-virtualenv-py3.11.json").write_text(json.dumps(content | {"commit_hash": commit}))
    repository.commit("new")
    opened = []
    sys.addaudithook(lambda event, what: opened.append(str(what[0])) if event == "open" else None)
    first = newest(repository, results, 1.25)
    assert len({path for path in opened if "-virtualenv" in path}) == 1102
    opened.clear()
    assert newest(repository, results, 1.25) == first
    assert len([path for path in opened if "-virtualenv" in path]) == 0
