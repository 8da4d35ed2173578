"""Several requests to a process at once: their receipts, a failure among them, and who does not wait for all."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import pytest

from perfsuite.isolate.errors import CandidateError
from perfsuite.isolate.process import MOST_AHEAD, Process

WAIT: dict[str, Any] = {"do": "wait"}
FAILS: dict[str, Any] = {"do": "hand", "chosen": [7]}
"""Asks for the result of a call that was not made."""


@pytest.fixture
def process() -> Iterator[Process]:
    made = Process(trusted=True, device="cpu")
    yield made
    made.close()


def where(process: Process) -> dict[str, Any]:
    """The receipt of a request that has a receipt like no other."""
    return process.ask({"do": "run", "start": 0, "calls": 0})


def test_each_request_has_its_receipt_in_order(process: Process) -> None:
    assert list(process.ask_each([])) == []
    assert list(process.ask_each([WAIT] * (3 * MOST_AHEAD + 1))) == [{"done": True}] * (3 * MOST_AHEAD + 1)


@pytest.mark.parametrize("place", [0, MOST_AHEAD - 1, 2 * MOST_AHEAD])
def test_a_failure_is_raised_in_its_place_and_the_process_is_in_step_again(process: Process, place: int) -> None:
    requests = [WAIT] * (3 * MOST_AHEAD)
    requests[place] = FAILS
    receipts = process.ask_each(requests)
    for _ in range(place):
        next(receipts)
    with pytest.raises(CandidateError, match="IndexError"):
        next(receipts)
    with pytest.raises(CandidateError, match="IndexError"):
        process.ask(FAILS)
    assert where(process) == {"done": True}


def test_who_stops_reading_leaves_nothing_for_the_next(process: Process) -> None:
    with contextlib.closing(process.ask_each([WAIT, WAIT, FAILS, FAILS])) as receipts:
        next(receipts)
    assert process.ask({"do": "wait"}) == {"done": True}
    with pytest.raises(CandidateError, match="IndexError"):
        process.ask(FAILS)


def test_a_process_that_ends_between_two_requests_is_a_failure(process: Process) -> None:
    receipts = process.ask_each([WAIT, {"do": "load"}, WAIT])  # an order without its arguments fails
    next(receipts)
    process._signal(9)
    time.sleep(0.2)
    with pytest.raises(CandidateError):
        list(receipts)
