"""Cases of a process that shares its card with other processes of the run."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch

from perfsuite.case.ask import Ask
from perfsuite.case.comparison import Comparison
from perfsuite.case.run import run_case
from perfsuite.device import turns
from perfsuite.outcome import Reason, Verdict
from perfsuite.problems import Gemm
from perfsuite.settings import Settings


def checked(candidate: Any, against: str | None = "cublas") -> Comparison:
    return run_case(Ask(Gemm(8, 8, 8, dtype="float32"), candidate, against=against, settings=Settings(device="cpu")))


@pytest.mark.parametrize("in_turns", [False, True])
def test_a_candidate_without_memory_is_not_accused_where_others_use_it_too(
    monkeypatch: pytest.MonkeyPatch, in_turns: bool
) -> None:
    def greedy(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        raise torch.OutOfMemoryError("no")

    monkeypatch.setattr(turns, "in_process", lambda: in_turns)
    one = checked(greedy)
    expected = (Verdict.UNDECIDED, Reason.OUT_OF_MEMORY) if in_turns else (Verdict.WRONG, Reason.CANDIDATE_FAILED)
    assert (one.verdict, one.reason) == expected


def test_checks_let_others_time_before_calls_of_the_candidate_and_that_is_no_check(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits: list[float] = []
    order: list[str] = []

    def pause() -> None:
        begun = time.perf_counter()
        time.sleep(0.05)
        order.append("pause")
        waits.append(time.perf_counter() - begun)

    def mine(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        order.append("call")
        return torch.mm(a, b)

    monkeypatch.setattr(turns, "pause", pause)
    one = checked(mine, against=None)
    assert one.verdict is Verdict.MET
    assert order.count("call") >= 2
    assert order == ["pause", "call"] * (len(order) // 2)
    assert one.wall_seconds - one.check_seconds >= sum(waits)
