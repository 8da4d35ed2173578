"""Threads that are busy in the calls of one side are told from those that are busy in both, and from those of C."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from perfsuite.guards import company
from perfsuite.guards.company import Company

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells the time of each thread")


@contextmanager
def sleeping() -> Iterator[int]:
    """A thread that does nothing, and its number."""
    ended = threading.Event()
    thread = threading.Thread(target=ended.wait)
    thread.start()
    try:
        yield thread.native_id or 0
    finally:
        ended.set()
        thread.join()


def timed(one: Company, shares: dict[int, tuple[float, float]], rounds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds in which each of these uses that share of a processor: in the candidate's sample, and in the rival's."""
    spent = dict.fromkeys(shares, 0.0)
    monkeypatch.setattr(Company, "now", lambda self: dict(spent))
    for number in range(rounds):
        for side in (company.SIDES, company.SIDES[::-1])[number % 2]:
            before = one.now()
            for each, (mine, rivals) in shares.items():
                spent[each] += 1e-3 * (rivals if side == "rival" else mine)
            one.used(side, before, 1e-3)


@pytest.mark.parametrize(
    ("mine", "rivals", "accused"),
    [(0.0, 0.9, True), (0.1, 0.5, True), (0.0, 0.05, False), (0.9, 0.9, False), (0.9, 0.0, False), (0.4, 0.6, False)],
)
def test_busy_in_the_rivals_calls_alone(mine: float, rivals: float, accused: bool, monkeypatch) -> None:
    one = Company(library=True)
    timed(one, {7: (mine, rivals)}, 20, monkeypatch)
    said = one.accusation()
    assert (said is not None) is accused
    if said:
        assert said.startswith(f"a thread uses {rivals:.0%} of a processor while the rival is timed, and {mine:.0%}")


def test_few_rounds_accuse_nobody_and_are_followed_by_more(monkeypatch) -> None:
    one = Company(library=True)
    timed(one, {7: (0.0, 0.9)}, 6, monkeypatch)
    assert one.accusation() is None
    assert one.suspected()
    timed(one, {7: (0.9, 0.9)}, 6, monkeypatch)
    assert not one.suspected()


@pytest.mark.parametrize(
    ("library", "side", "watched"),
    [(True, "candidate", True), (True, "rival", False), (False, "candidate", True), (False, "rival", False)],
)
def test_a_thread_belongs_to_the_side_in_whose_call_it_began(library: bool, side: str, watched: bool) -> None:
    one = Company(library=library)
    one.began("")
    with sleeping() as number:
        one.began(side)
        assert (number in one.now()) is watched
    # Python's join returns before the kernel has removed the thread, so a busy machine shows it a little longer.
    end = time.monotonic() + 30
    while number in one.now() and time.monotonic() < end:
        time.sleep(1e-3)
    assert number not in one.now()


@pytest.mark.parametrize("library", [True, False])
def test_an_older_thread_is_watched_beside_a_library(library: bool) -> None:
    with sleeping() as number:
        one = Company(library=library)
        one.began("candidate")
        assert (number in one.now()) is library
        assert threading.get_native_id() not in one.now()


def test_nothing_is_watched_where_a_device_computes() -> None:
    with sleeping():
        one = Company(library=True, on_host=False)
        one.began("candidate")
        assert one.now() == {}
