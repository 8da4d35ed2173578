"""Work that a call has left on another stream of a made-up card when times are to be taken."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from made_up_card import Card, card, takes

from perfsuite.case import failures
from perfsuite.clock import cuda
from perfsuite.clock.base import Sides
from perfsuite.clock.graph import GraphClock
from perfsuite.device import idle
from perfsuite.guards.ground import looker
from perfsuite.guards.watch import TamperedError, Watch
from perfsuite.problems.base import Inputs

__all__ = ["card"]


@pytest.fixture
def ended(card: Card, monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Set when the work on other streams has ended."""
    event = threading.Event()
    event.set()
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: event.wait(60.0))
    monkeypatch.setattr(idle, "_endless", {})
    yield event
    event.set()


def opened(card: Card, watch: Watch | None = None) -> GraphClock:
    sides = Sides(takes(card, 2e-5), takes(card, 2e-5), lambda: Inputs((torch.randn(256),)), watch=watch)
    clock = GraphClock(sides)
    clock.setup()
    return clock


def test_nothing_is_told_of_a_card_that_is_idle(card: Card, ended: threading.Event) -> None:
    clock = opened(card)
    clock.rounds(3)
    assert not clock.warnings


def test_rounds_wait_for_the_end_of_work_on_other_streams(
    card: Card, ended: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = opened(card)
    seen: list[bool] = []
    plain = clock._half

    def half(*args: Any, **options: Any) -> None:
        seen.append(ended.is_set())
        plain(*args, **options)

    monkeypatch.setattr(clock, "_half", half)
    for _ in range(2):
        ended.clear()
        threading.Timer(2 * cuda.LEFT_SECONDS, ended.set).start()
        clock.rounds(2)
    assert seen
    assert all(seen)
    assert len(clock.warnings) == 1
    assert "another stream was waited for" in clock.warnings[0]


@pytest.mark.parametrize("when", ["set-up", "rounds"])
def test_work_that_does_not_end_is_tampering(
    when: str, card: Card, ended: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = Watch(looker())
    clock = opened(card, watch) if when == "rounds" else None
    monkeypatch.setattr(idle, "MOST_SECONDS", 0.05)
    ended.clear()
    replays = len(card.replays)
    with pytest.raises(TamperedError, match="never idle"):
        clock.rounds(2) if clock else opened(card, watch)
    assert len(card.replays) == replays
    assert watch.changed == ["the card is never idle: work that a call left on another stream does not end"]


def test_a_case_behind_such_work_is_not_accused(
    card: Card, ended: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fake(name: str, value: Any) -> None:
        monkeypatch.setattr(torch.cuda, name, value)

    fake("is_initialized", lambda: True)
    assert failures.broken_context("cuda") is None
    monkeypatch.setattr(idle, "MOST_SECONDS", 0.05)
    ended.clear()
    assert failures.broken_context("cuda") == "work that it left on the card does not end"
    assert failures.broken_context("cpu") is None
