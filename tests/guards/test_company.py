"""Threads that are busy in the calls of one side are told from those that are busy in both, and from those of C."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from perfsuite.guards import company
from perfsuite.guards.company import Company, Now

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells the time of each thread")


LOCK = "a thread holds the interpreter's lock while the rival is timed, in {} rounds; in the candidate's calls in 0"


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


def others(one: Company) -> dict[int, float]:
    """The threads and processes that are watched, and their processor times."""
    now = one.now()
    assert now is not None
    return now.others


def timed(one: Company, shares: dict[int, tuple[float, float]], rounds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds in which each of these uses that share of a processor: in the candidate's sample, and in the rival's.

    Number 0 is the thread that calls both. It waits for the rest of the time.
    """
    used = {0: (1.0, 1.0), **shares}
    spent, waits = dict.fromkeys(used, 0.0), [0]

    def now(_: Company) -> Now:
        return Now(spent[0], waits[0], {number: one for number, one in spent.items() if number})

    monkeypatch.setattr(Company, "now", now)
    for number in range(rounds):
        for side in (company.SIDES, company.SIDES[::-1])[number % 2]:
            before = now(one)
            waits[0] += 0 in shares
            for each, (mine, rivals) in used.items():
                spent[each] += 1e-3 * (rivals if side == "rival" else mine)
            one.used(side, before, 1e-3)


@pytest.mark.parametrize(
    ("mine", "rivals", "accused"),
    [(0.0, 0.9, True), (0.1, 0.5, True), (0.0, 0.05, False), (0.9, 0.9, False), (0.9, 0.0, False), (0.4, 0.6, False)],
)
def test_busy_in_the_rivals_calls_alone(mine: float, rivals: float, accused: bool, monkeypatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    one = Company(library=True)
    timed(one, {7: (mine, rivals)}, 20, monkeypatch)
    said = one.accusation()
    assert (said is not None) is accused
    if said:
        assert said.startswith(f"a thread uses {rivals:.0%} of what the caller has of a processor while the rival is")
        assert f"timed, and {mine:.0%} in the candidate's calls" in said


@pytest.mark.parametrize(("own", "mine", "rivals", "accused"), [(0.2, 0.03, 0.1, True), (0.2, 0.1, 0.1, False)])
def test_on_a_busy_machine_shares_are_of_what_there_was(own, mine, rivals, accused, monkeypatch) -> None:
    """A rival that gets a fifth of a processor, beside a process that takes half as much, and so it goes on."""
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    one = Company(library=True)
    one._watched, one._processes = set(), {7}
    timed(one, {0: (0.6 if accused else own, own), 7: (mine, rivals)}, 20, monkeypatch)
    assert (one.accusation() is not None) is accused


def test_few_rounds_accuse_nobody_and_are_followed_by_more(monkeypatch) -> None:
    one = Company(library=True)
    timed(one, {7: (0.0, 0.9)}, 6, monkeypatch)
    assert one.accusation() is None
    assert one.suspected()
    timed(one, {7: (0.9, 0.9)}, 6, monkeypatch)
    assert not one.suspected()


@pytest.mark.parametrize(
    ("own", "library", "threads", "accused"),
    [
        ((1.0, 0.1), True, 1, True),
        ((0.9, 0.7), True, 1, True),
        ((1.0, 0.9), True, 1, False),  # hardly a wait
        ((0.1, 0.1), True, 1, False),
        ((0.1, 1.0), True, 1, False),
        ((1.0, 0.1), False, 1, False),  # a rival of the user's may wait by itself
        ((1.0, 0.1), True, 2, False),  # so does one of several threads
    ],
)
def test_a_lock_held_by_a_thread_that_is_always_busy(own, library, threads, accused, monkeypatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    with sleeping():
        one = Company(library=library)
        one._watched = {7}
        timed(one, {0: own, 7: (1.0, 1.0)}, 20, monkeypatch)
        said = one.accusation()
    assert said == (LOCK.format(20) if accused else None)


def test_without_a_thread_that_could_hold_a_lock_waits_accuse_nobody(monkeypatch) -> None:
    one = Company(library=True)
    one._watched = set()
    timed(one, {0: (1.0, 0.1)}, 20, monkeypatch)
    assert one.accusation() is None


@pytest.mark.parametrize(
    ("library", "side", "watched"),
    [(True, "candidate", True), (True, "rival", False), (False, "candidate", True), (False, "rival", False)],
)
def test_a_thread_belongs_to_the_side_in_whose_call_it_began(library: bool, side: str, watched: bool) -> None:
    one = Company(library=library)
    one.began("")
    with sleeping() as number:
        one.began(side)
        assert (number in others(one)) is watched
    # Python's join returns before the kernel has removed the thread, so a busy machine shows it a little longer.
    end = time.monotonic() + 30
    while number in others(one) and time.monotonic() < end:
        time.sleep(1e-3)
    assert number not in others(one)


@pytest.mark.parametrize("library", [True, False])
def test_an_older_thread_is_watched_beside_a_library(library: bool) -> None:
    with sleeping() as number:
        one = Company(library=library)
        one.began("candidate")
        assert (number in others(one)) is library
        assert threading.get_native_id() not in others(one)


def test_nothing_is_watched_where_a_device_computes() -> None:
    with sleeping():
        one = Company(library=True, on_host=False)
        one.began("candidate")
        assert one.now() is None
