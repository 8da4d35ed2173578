"""Clocks of processes that share a card, on a made-up one: what is timed is timed alone, all else side by side."""

from __future__ import annotations

import statistics
from typing import Any

import pytest
import torch
from made_up_card import Card, card, takes

from perfsuite.clock import cuda
from perfsuite.clock.base import Sides
from perfsuite.clock.choose import open_clock
from perfsuite.clock.events import EventsClock
from perfsuite.clock.graph import GraphClock
from perfsuite.clock.in_turns import EventsClockInTurns, GraphClockInTurns, InTurns
from perfsuite.device import turns
from perfsuite.problems.base import Inputs
from perfsuite.settings import Settings

__all__ = ["card"]

TIMED = ("_measure_costs", "_choose_launches", "_half", "host_seconds")
"""Methods of the clocks that take times that count."""


class Said:
    """Stands for the turns, of which others get one whenever this process works beside them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_alone = False
        self.said: list[str] = []
        monkeypatch.setattr(turns, "in_process", lambda: True)
        monkeypatch.setattr(turns, "is_alone", lambda: self.is_alone)
        monkeypatch.setattr(turns, "memory_share", lambda: 0.25)
        monkeypatch.setattr(turns, "alone", lambda: self.change(True))
        monkeypatch.setattr(turns, "beside", lambda: self.change(False))

    def change(self, alone: bool) -> None:
        if alone != self.is_alone:
            self.said.append("alone" if alone else "beside")
        self.is_alone = alone

    def watch(self, clock: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        """Note each method of the clock that is called, and check that what is timed is timed alone."""
        genuine_warm_up = cuda.warm_up

        def warm_up(*how: Any) -> bool:
            assert self.is_alone
            self.said.append("warm")
            return genuine_warm_up(*how)

        monkeypatch.setattr(cuda, "warm_up", warm_up)
        for name in (*TIMED, "_make_sets", "_capture_all", "timed_calls"):
            genuine = getattr(clock, name, None)
            if genuine is None:
                continue

            def call(*arguments: Any, name: str = name, genuine: Any = genuine, **options: Any) -> Any:
                self.said.append(name)
                found = genuine(*arguments, **options)
                assert name not in TIMED or name == "host_seconds" or self.is_alone, name
                return found

            monkeypatch.setattr(clock, name, call)


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> Said:
    return Said(monkeypatch)


def sides_of(card: Card, candidate: float, rival: float, **options: Any) -> Sides:
    return Sides(takes(card, candidate), takes(card, rival), lambda: Inputs((torch.randn(256),)), **options)


@pytest.mark.parametrize("kind", [GraphClockInTurns, EventsClockInTurns])
@pytest.mark.parametrize("seconds", [4e-6, 150e-6, 2e-3])
def test_what_is_timed_is_timed_alone(
    card: Card, said: Said, monkeypatch: pytest.MonkeyPatch, kind: type[InTurns], seconds: float
) -> None:
    clock = kind(sides_of(card, seconds, 1.1 * seconds))
    said.watch(clock, monkeypatch)
    clock.setup()
    assert said.is_alone  # the rounds follow at once: nobody else comes between
    rounds = clock.rounds(6)
    assert "beside" not in said.said
    begun = said.said.index("alone")
    assert said.said.index("_make_sets") < begun  # inputs are made beside others

    del said.said[:]
    clock.setup()
    assert not said.is_alone
    assert [one for one in said.said if one in ("beside", "_make_sets", "_capture_all")][:2] == ["beside", "_make_sets"]
    assert "warm" not in said.said  # not beside others ...
    rounds += clock.rounds(6)
    assert said.said.index("alone") < said.said.index("warm") < said.said.index("_half")  # ... but before the rounds

    del said.said[:]
    clock.timed_calls(2)
    assert said.said[:2] == ["timed_calls", "beside"]
    clock.host_seconds()
    assert not said.is_alone
    rounds += clock.rounds(6)
    assert said.said.count("warm") == 1  # others had the card
    clock.close()
    assert not said.is_alone
    speeds = [one.rival_seconds / one.candidate_seconds for one in rounds]
    assert statistics.median(speeds) == pytest.approx(1.1, rel=2e-3)


def test_times_are_those_of_a_clock_that_has_the_card_for_itself(card: Card, said: Said) -> None:
    found: dict[type, list[tuple[float, float]]] = {}
    for kind in (GraphClock, GraphClockInTurns):
        clock = kind(sides_of(card, 20e-6, 30e-6), seed=3)
        for _ in range(2):
            clock.setup()
            rounds = clock.rounds(5)
            found.setdefault(kind, []).extend((one.candidate_seconds, one.rival_seconds) for one in rounds)
        assert clock.launches > 1
        clock.close()
    plain, in_turns = found.values()
    assert plain == [pytest.approx(one) for one in in_turns]


def test_a_share_of_the_memory_is_this_process_s(card: Card, said: Said) -> None:
    plain, shared = (kind(sides_of(card, 1e-5, 1e-5)) for kind in (GraphClock, GraphClockInTurns))
    assert 3.9 < plain._calls_that_fit(1000) / shared._calls_that_fit(1000) < 4.1


@pytest.mark.parametrize(
    ("asked", "plain", "in_turns"),
    [("auto", GraphClock, GraphClockInTurns), ("events", EventsClock, EventsClockInTurns)],
)
def test_the_clock_of_a_process_that_shares_its_card(
    card: Card, monkeypatch: pytest.MonkeyPatch, asked: Any, plain: type, in_turns: type
) -> None:
    settings = Settings(device="cuda", clock=asked)
    alone = open_clock(sides_of(card, 1e-5, 1e-5), settings)
    assert type(alone) is plain
    alone.close()
    Said(monkeypatch)
    shared = open_clock(sides_of(card, 1e-5, 1e-5), settings)
    assert type(shared) is in_turns
    shared.close()


def test_a_clock_that_cannot_capture_leaves_the_card_to_others(
    card: Card, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise cuda.CaptureError("candidate", RuntimeError("no"))

    monkeypatch.setattr(GraphClock, "_capture_all", refuse)
    with pytest.raises(cuda.CaptureError):
        open_clock(sides_of(card, 1e-5, 1e-5), Settings(device="cuda", clock="graph"))
    assert not said.is_alone
