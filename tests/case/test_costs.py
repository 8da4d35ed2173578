"""Costs of a case beside the time of a call: the first call, a host time that waits, and the timer's own part."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fake_clock import FakeClock

from perfsuite.case import checks
from perfsuite.case.ask import Ask
from perfsuite.case.run import compare, run_case
from perfsuite.clock.rounds import Round
from perfsuite.problems import Custom, Gemm
from perfsuite.record.case import case_record
from perfsuite.settings import Settings

FACTS = dict.fromkeys(("commit", "dirty", "gpu", "torch", "cuda", "driver")) | {"harness": "3"}
SETTINGS = Settings(device="cpu", seconds=0.1)


def test_what_the_clock_says_of_waiting_and_of_itself_is_on_record() -> None:
    clock = FakeClock(lambda setup, count: [Round(1e-3, 1e-3, "candidate")] * count, host_seconds=(1e-5, 2e-5))
    clock.waited_seconds, clock.timer_seconds = (3e-5, 4e-5), 2.5e-6
    problem: Any = Gemm(8, 8, 8, dtype="float32")
    ask = Ask(problem, torch.mm, against="cublas", correctness=False, at_least=0.5, settings=SETTINGS)
    line = case_record(run_case(ask, open_clock=lambda sides, settings: clock), test=None, fingerprint=FACTS)
    assert (line.candidate_host_seconds, line.rival_host_seconds) == (1e-5, 2e-5)
    assert (line.candidate_waited_seconds, line.rival_waited_seconds) == (3e-5, 4e-5)
    assert line.timer_seconds == 2.5e-6


def test_the_first_call_is_on_record_and_no_part_of_the_checks() -> None:
    calls = []

    def compiles(x: torch.Tensor) -> torch.Tensor:
        if not calls:
            time.sleep(0.2)
        calls.append(1)
        return x * 2

    problem = Custom(args=(torch.randn(8, 8),), label="made", against=lambda x: x + x)
    one = compare(problem, compiles, settings=SETTINGS)
    assert one.candidate_first_seconds is not None
    assert one.candidate_first_seconds >= 0.2
    assert one.check_seconds is not None
    assert one.wall_seconds is not None
    # The first call lies within the wall time, beside the checks.
    assert one.check_seconds + one.candidate_first_seconds <= one.wall_seconds
    assert case_record(one, test=None, fingerprint=FACTS).candidate_first_seconds == one.candidate_first_seconds


def test_the_first_call_of_a_rival_that_compiles_is_no_check_and_a_part_of_a_check_counts_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [0.0]
    calls: list[str] = []

    def rival(x: torch.Tensor) -> torch.Tensor:
        now[0] += 1.0 if "rival" in calls else 1000.0
        calls.append("rival")
        return x * 2

    def mine(x: torch.Tensor) -> torch.Tensor:
        now[0] += 1.0 if "mine" in calls else 1000.0
        calls.append("mine")
        return x + x

    monkeypatch.setattr(checks, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    clock = FakeClock(lambda setup, count: [Round(1e-3, 1e-3, "candidate")] * count)
    problem = Custom(args=(torch.randn(8, 8),), label="made", reference=lambda x: x.double() * 2)
    ask = Ask(problem, mine, against=rival, at_least=0.5, settings=SETTINGS)
    one = run_case(ask, open_clock=lambda sides, settings: clock)
    assert 0 < one.check_seconds <= len(calls) - 2
