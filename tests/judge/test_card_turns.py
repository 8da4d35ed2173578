"""Several processes of a pool on one card: their number, their turns, and a job that needs more than its share."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from perfsuite.isolate import turns
from perfsuite.isolate.turns import Turns
from perfsuite.judge import worker
from perfsuite.judge.pool import _local
from perfsuite.outcome import Reason
from perfsuite.workers.child import BESIDE
from perfsuite.workers.ray_cluster import Cluster, Machine


def test_each_card_has_so_many_processes_and_they_begin_on_different_cards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)))
    made = list(_local(1, ["3", "7"], beside=2))
    assert [one.place for one in made] == ["3", "7", "3", "7"]
    assert {one._environment[BESIDE] for one in made} == {"2"}
    assert made[0]._words[2:] == made[2]._words[2:] == ("0", "1", "2", "3")
    assert [one._environment[BESIDE] for one in _local(1, ["3"])] == ["1"]
    assert [one._environment for one in _local(3, [], beside=4)] == [{}, {}, {}]


def test_workers_of_a_cluster_share_its_cards_if_they_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    there = [Machine("a", "10.0.0.1", 2, "H200"), Machine("b", "10.0.0.2", 1, "H200"), Machine("c", "x", 0, None)]
    monkeypatch.setattr(Cluster, "machines", there)
    assert [one._on_a_card for one in Cluster("x").workers(("-m", "x"), cards=True, on_a_card=4)] == 12 * [4]
    assert [one._on_a_card for one in Cluster("x").workers(("-m", "x"), cards=True)] == 3 * [1]
    assert [one._on_a_card for one in Cluster("x").workers(("-m", "x"), cards=False, on_a_card=4)] == 3 * [1]


@pytest.mark.parametrize(
    ("reason", "sentence", "again"),
    [
        (Reason.OUT_OF_MEMORY, "", True),
        (Reason.SHARED_DEVICE, "1 other process on the card", True),
        (Reason.NOT_STARTED, "", True),
        (Reason.CANDIDATE_FAILED, "raised RuntimeError: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate", True),
        (Reason.CANDIDATE_FAILED, "raised RuntimeError: Triton Error [CUDA]: Out of memory", True),
        (Reason.CANDIDATE_FAILED, "raised ValueError: no", False),
        (Reason.INACCURATE, "relative error 1", False),
        (Reason.TOO_SLOW, "0.5 of cublas", False),
    ],
)
def test_what_others_may_have_caused_is_judged_again_without_them_and_with_all_memory(
    reason: Reason, sentence: str, again: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = Turns(tmp_path / "turns", 8, lambda: 1)
    monkeypatch.setattr(turns, "_mine", mine)
    monkeypatch.setattr(worker.ahead, "keep", lambda *_, **__: None)
    monkeypatch.setattr(worker, "task_of", lambda *_, **__: None)
    shares: list[float] = []

    def judge_one(*_: Any, **__: Any) -> Any:
        with turns.working():
            turns.alone()
            shares.append(turns.memory_share())
            turns.beside()
        found = {"verdict": "UNDECIDED", "reason": str(reason), "sentence": sentence}
        if len(shares) > 1:
            found = {"verdict": "MET", "reason": "checked", "sentence": "right"}
        return SimpleNamespace(as_json=lambda: found)

    monkeypatch.setattr(worker, "judge_one", judge_one)
    job = {"id": "1", "candidate": {"files": {"a.py": "def run(): pass\n"}}, "problem": {"family": "gemm"}}
    found = worker.answer_to({"job": job, "terms": {"device": "cuda"}})
    assert found["reason"] == ("checked" if again else str(reason))
    assert shares == ([0.125, 1.0] if again else [0.125])
    assert mine.share == 0.125
    assert not mine._inside
