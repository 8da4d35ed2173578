"""The wait for a card that has nothing to do, on a made-up card whose work ends, fails or does not end."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from perfsuite.device import idle
from perfsuite.device.idle import seconds_until_idle
from perfsuite.device.turns import Turns


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """The end of what runs on every stream of a card."""
    ended = threading.Event()
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: ended.wait(20.0))
    monkeypatch.setattr(idle, "_endless", {})
    yield ended
    ended.set()


def test_an_idle_card_is_idle_at_once(work: threading.Event) -> None:
    work.set()
    assert seconds_until_idle(0) is not None
    assert not idle._endless


def test_the_time_is_that_of_the_work(work: threading.Event) -> None:
    threading.Timer(0.1, work.set).start()
    begun = time.perf_counter()
    found = seconds_until_idle(0, 60.0)
    assert found is not None
    assert 0.0 < found <= time.perf_counter() - begun


def test_work_that_does_not_end_is_waited_for_by_one_thread_a_card(work: threading.Event) -> None:
    before = threading.active_count()
    assert [seconds_until_idle(device, 0.01) for device in (0, 0, 1, 0)] == [None] * 4
    assert threading.active_count() == before + 2
    work.set()
    assert seconds_until_idle(0, 60.0) is not None  # it ended after all
    assert set(idle._endless) == {1}


def test_the_error_of_the_card_is_raised_by_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    def failed(device: int) -> None:
        raise torch.AcceleratorError("an illegal memory access was encountered", 700)

    monkeypatch.setattr(torch.cuda, "synchronize", failed)
    with pytest.raises(torch.AcceleratorError, match="illegal memory access"):
        seconds_until_idle(0)


def test_a_turn_is_given_back_though_the_work_of_this_process_does_not_end(
    work: threading.Event, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(idle, "MOST_SECONDS", 0.01)
    mine = Turns(tmp_path / "turns", 2, lambda: 1, in_process=True)
    mine.begin()
    mine.end()
    assert set(idle._endless) == {0}
    mine.leave()
