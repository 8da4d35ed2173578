"""The least time that a card could take holds whatever a candidate makes the clock say."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from fake_clock import FakeClock

from perfsuite.case import run
from perfsuite.case.ask import Ask
from perfsuite.case.failures import Stop
from perfsuite.device.telemetry import Telemetry
from perfsuite.guards.ground import looker
from perfsuite.outcome import Reason, Verdict
from perfsuite.problems import Custom
from perfsuite.settings import CacheMode, Settings
from perfsuite.verdict.floor import Ceilings

CARD = Ceilings("card", {}, 4e12)
WARNING = "the candidate returns the same memory again: only its last results are judged"


def floor(
    monkeypatch: pytest.MonkeyPatch,
    *,
    seconds: float,
    rival: float | None = None,
    covered: bool = True,
    cache: CacheMode = "cold",
    others: int | None = 0,
) -> None:
    """Judge a time by the floor of 4 MB on `CARD`, which is one microsecond, with a warning of the clock."""
    monkeypatch.setattr(run, "ceilings_of", lambda device: CARD)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    problem = Custom(args=(torch.randn(8),), bytes=4e6, against=torch.abs)
    case = run._Case(Ask(problem, torch.abs, against=torch.abs, settings=Settings(device="cpu")), looker())
    case.settings = replace(case.settings, device="cuda", cache=cache)
    case.found = replace(case.found, candidate_seconds=seconds, rival_seconds=rival)
    case.found = replace(case.found, telemetry=Telemetry(other_processes=others))
    clock: Any = FakeClock(lambda setup, count: [])
    clock.kind, clock.covered, clock.warnings = "graph", covered, [WARNING]
    case._floor(clock)


def test_a_warning_that_a_candidate_causes_leaves_the_bound_of_the_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Stop) as stopped:
        floor(monkeypatch, seconds=5e-7)
    assert stopped.value.reason is Reason.FASTER_THAN_THE_CARD
    floor(monkeypatch, seconds=2e-6)


def test_bytes_that_may_lie_in_the_cache_set_no_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    floor(monkeypatch, seconds=5e-7, covered=False)
    floor(monkeypatch, seconds=5e-7, cache="hot")


@pytest.mark.parametrize("others", [0, None])
def test_a_time_below_the_floor_is_wrong_on_a_card_of_ones_own(
    monkeypatch: pytest.MonkeyPatch, others: int | None
) -> None:
    with pytest.raises(Stop) as stopped:
        floor(monkeypatch, seconds=5e-7, others=others)
    assert stopped.value.verdict is Verdict.WRONG


def test_on_a_shared_card_a_time_below_the_floor_accuses_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        Stop, match=r"2 other processes on the card; 500 ns a call is less than the card can"
    ) as stopped:
        floor(monkeypatch, seconds=5e-7, others=2)
    assert (stopped.value.verdict, stopped.value.reason) == (Verdict.UNDECIDED, Reason.SHARED_DEVICE)
    floor(monkeypatch, seconds=2e-6, others=2)


def test_on_a_shared_card_a_rival_below_the_floor_makes_no_candidate_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        Stop, match=r"1 other process on the card; 0.0200 ns a call of the rival is less than"
    ) as stopped:
        floor(monkeypatch, seconds=2e-6, rival=2e-11, others=1)
    assert (stopped.value.verdict, stopped.value.reason) == (Verdict.UNDECIDED, Reason.SHARED_DEVICE)
    floor(monkeypatch, seconds=2e-6, rival=2e-11)
    floor(monkeypatch, seconds=2e-6, rival=2e-6, others=1)
