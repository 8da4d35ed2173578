"""Several processes of a pool on one card: their number, their turns, and a job that needs more than its share."""

from __future__ import annotations

import argparse
import contextlib
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from perfsuite.cli import judge_pools
from perfsuite.cli.commands import judge
from perfsuite.device import turns
from perfsuite.device.cards import Device, Devices
from perfsuite.device.turns import Turns
from perfsuite.judge import beside, worker
from perfsuite.judge.pool import _local
from perfsuite.outcome import Reason
from perfsuite.workers.child import BESIDE
from perfsuite.workers.ray_cluster import Cluster, Machine


def test_each_card_has_so_many_processes_and_they_begin_on_different_cards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)))
    made = list(_local(1, ["3", "7"], beside=2))
    assert [one.place for one in made] == ["3", "7", "3", "7"]
    assert {one._environment[BESIDE] for one in made} == {"2"}
    assert {one._environment["CUDA_DEVICE_ORDER"] for one in made} == {"PCI_BUS_ID"}, "NVML's numbers"
    assert made[0]._words[2:] == made[2]._words[2:] == ("0", "1", "2", "3")
    assert [one._environment[BESIDE] for one in _local(1, ["3"])] == ["1"]
    assert [one._environment for one in _local(3, [], beside=4)] == [{}, {}, {}]


CARD = Device(0, "H200", "GPU-1", (9, 0), 140 << 30, "0")
"""A card with room for all."""


@pytest.mark.parametrize(
    ("cards", "processors", "host", "limits", "jobs", "wanted"),
    [
        ([CARD], 16, 128, {}, None, 4),
        ([CARD], 64, 1024, {}, None, 4),
        ([CARD, CARD], 16, 128, {}, None, 2),
        ([CARD], 15, 128, {}, None, 3),
        ([CARD], 2, 128, {}, None, 1),
        ([CARD], 16, 20, {}, None, 2),
        ([CARD, replace(CARD, memory_bytes=24 << 30)], 64, 512, {}, None, 3),
        ([replace(CARD, memory_bytes=6 << 30)], 64, 512, {}, None, 1),
        ([CARD], 16, 128, {"cpu.max": "900000 100000"}, None, 2),
        ([CARD], 16, 128, {"cpu.max": "max 100000", "memory.max": "max"}, None, 4),
        ([CARD], 16, 128, {"memory.max": str(25 << 30)}, None, 3),
        ([CARD], 16, 128, {}, 1, 1),
        ([CARD, CARD], 64, 512, {}, 3, 2),
        ([], 64, 512, {}, None, 1),
    ],
)
def test_as_many_processes_share_a_card_as_processors_and_memory_feed(
    cards: list[Device], processors: int, host: int, limits: dict[str, str], jobs: int | None, wanted: int,
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(processors)))
    monkeypatch.setattr("os.sysconf", lambda name: {"SC_PHYS_PAGES": host << 20, "SC_PAGESIZE": 1 << 10}[name])
    monkeypatch.setattr(beside, "CGROUPS", tmp_path)
    for name, text in limits.items():
        (tmp_path / name).write_text(f"{text}\n")
    assert beside.on_each_card(cards, jobs) == wanted


@pytest.mark.parametrize(("words", "wanted"), [([], 3), (["--beside", "2"], 2), (["--beside", "7"], 7)])
def test_the_command_puts_no_more_processes_on_a_card_than_there_are_candidates(
    words: list[str], wanted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(64)))
    monkeypatch.setattr(beside, "_host_bytes", lambda: 1 << 40)
    monkeypatch.setattr(beside, "CGROUPS", Path("/nowhere"))
    monkeypatch.setattr(judge_pools, "usable_devices", lambda _: Devices((CARD,)))
    monkeypatch.setattr(judge_pools, "held", lambda _: contextlib.nullcontext())
    parser = argparse.ArgumentParser()
    judge.add_arguments(parser)
    arguments = parser.parse_args(["a.py", "b.py", "c.py", "a.py", "--problem", "p.json", *words])
    with judge_pools.pools(arguments, {}, []) as made:
        states = made[None].state
    assert [one.place for one in states] == ["0"] * wanted


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
