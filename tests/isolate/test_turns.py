"""Turns on a card: many work, or one is alone; a process that dies gives its turn back; captures are no timing."""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import signal
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from perfsuite.clock.graph import GraphClock
from perfsuite.device import turns
from perfsuite.device.turns import Turns
from perfsuite.isolate.card_clock import IsolatedCardClock

FORK = multiprocessing.get_context("fork")
LONGEST = 120.0


def works_and_times(path: Path, number: int, told: Any, all_there: Any) -> None:
    mine = Turns(path, 3, lambda: 10 + number)
    mine.begin()
    mine.end()  # from now on it is counted
    all_there.wait(LONGEST)
    for _ in range(6):
        mine.begin()
        told.put((time.monotonic(), number, "work"))
        time.sleep(0.01)
        told.put((time.monotonic(), number, "worked"))
        mine.alone()
        told.put((time.monotonic(), number, "alone"))
        time.sleep(0.01)
        told.put((time.monotonic(), number, f"there are {mine.contexts_beside()} others"))
        mine.beside()
        mine.end()
    all_there.wait(LONGEST)  # who has ended is counted no more


def test_nobody_works_while_one_is_alone_and_each_knows_the_others_processes(tmp_path: Path) -> None:
    told, all_there = FORK.Queue(), FORK.Barrier(3)
    given = [(tmp_path / "turns", number, told, all_there) for number in range(3)]
    there = [FORK.Process(target=works_and_times, args=one) for one in given]
    for one in there:
        one.start()
    rows = sorted(told.get(timeout=LONGEST) for _ in range(3 * 6 * 4))
    for one in there:
        one.join()
    alone, working = None, set()
    for _, number, what in rows:
        if what == "work":
            assert alone is None
            working.add(number)
        elif what == "worked":
            working.discard(number)
        elif what == "alone":
            assert alone is None
            assert not working
            alone = number
        else:
            assert alone == number
            alone = None
    counted = {(number, what) for _, number, what in rows if what.startswith("there")}
    assert counted == {(0, "there are 23 others"), (1, "there are 22 others"), (2, "there are 21 others")}


def holds(path: Path, ready: Any) -> None:
    mine = Turns(path, 2, lambda: 5)
    mine.begin()
    mine.alone()
    ready.set()
    time.sleep(LONGEST)


def test_a_process_that_dies_gives_its_turn_back_and_is_counted_no_more(tmp_path: Path) -> None:
    ready = FORK.Event()
    other = FORK.Process(target=holds, args=(tmp_path / "turns", ready))
    other.start()
    assert ready.wait(LONGEST)
    begun, made = threading.Event(), []

    def begin() -> None:
        made.append(Turns(tmp_path / "turns", 2, lambda: 1))
        made[0].begin()
        begun.set()

    threading.Thread(target=begin, daemon=True).start()
    assert not begun.wait(0.1)
    assert other.pid is not None
    os.kill(other.pid, signal.SIGKILL)
    other.join()
    assert begun.wait(LONGEST)
    assert made[0].contexts_beside() == 0


def waits_to_be_alone(path: Path) -> bool:
    """True if another process waits to be alone."""
    with path.with_name(f"{path.name}.waiting").open() as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def works_until_another_waits(path: Path, there: Any, one_waits: Any, begun: Any) -> None:
    mine = Turns(path, 3, lambda: 1)
    mine.begin()
    there.set()
    while not waits_to_be_alone(path):
        time.sleep(0.01)
    one_waits.set()
    begun.wait(0.5)  # time for the other one to begin too early
    mine.end()


def begins_later(path: Path, one_waits: Any, begun: Any, was_alone: Any, told: Any) -> None:
    mine = Turns(path, 3, lambda: 1)
    one_waits.wait()
    mine.begin()
    told.put(was_alone.is_set())
    begun.set()
    mine.end()


def test_whoever_waits_to_be_alone_comes_before_those_who_begin_to_work(tmp_path: Path) -> None:
    path, told = tmp_path / "turns", FORK.Queue()
    there, one_waits, begun, was_alone = (FORK.Event() for _ in range(4))
    others = [
        FORK.Process(target=works_until_another_waits, args=(path, there, one_waits, begun)),
        FORK.Process(target=begins_later, args=(path, one_waits, begun, was_alone, told)),
    ]
    for one in others:
        one.start()
    assert there.wait(LONGEST)
    mine = Turns(path, 3, lambda: 1)
    mine.begin()
    mine.alone()
    was_alone.set()
    mine.end()
    assert told.get(timeout=LONGEST)
    for one in others:
        one.join()


def times_and_captures(path: Path, number: int, told: Any, both: Any, asked: Any) -> None:
    mine = Turns(path, 2, lambda: 1)
    mine.begin()
    both.wait()
    resting: list[bool] = []

    def rest() -> None:
        with path.open() as other:
            try:
                fcntl.flock(other, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                resting.append(True)

    mine.alone(rest)
    told.put((time.monotonic(), number, "alone"))
    first = not asked.is_set()
    asked.set()
    while first and not waits_to_be_alone(path):
        time.sleep(0.01)
    resting.clear()
    told.put((time.monotonic(), number, "ends"))
    mine.beside()
    told.put((time.monotonic(), number, f"beside, rested {resting}"))
    both.wait()  # both capture at the same time
    told.put((time.monotonic(), number, "captured"))
    mine.end()


def test_who_has_been_alone_captures_when_all_who_waited_have_been_so_too(tmp_path: Path) -> None:
    told, both, asked = FORK.Queue(), FORK.Barrier(2, timeout=LONGEST), FORK.Event()
    given = [(tmp_path / "turns", number, told, both, asked) for number in (0, 1)]
    there = [FORK.Process(target=times_and_captures, args=one) for one in given]
    for one in there:
        one.start()
    rows = sorted(told.get(timeout=LONGEST) for _ in range(2 * 4))
    for one in there:
        one.join()
    first, second = rows[0][1], 1 - rows[0][1]
    assert [(number, what) for _, number, what in rows[:4]] == [
        (first, "alone"), (first, "ends"), (second, "alone"), (second, "ends"),
    ]  # fmt: skip
    # Nobody captures while the other is alone.
    assert {what for _, _, what in rows[4:6]} == {"beside, rested [True]"}
    assert {what for _, _, what in rows[6:]} == {"captured"}


def test_to_be_alone_waits_for_the_processes_that_leave(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "_mine", mine := Turns(tmp_path / "turns", 2, lambda: 1))
    gone = threading.Event()
    with turns.working():
        turns.until_gone(lambda: gone.wait(LONGEST))
        threading.Timer(0.1, gone.set).start()
        mine.alone()
        assert gone.is_set()
    assert not mine._inside


def test_a_process_that_waits_rests_before_another_one_is_alone(tmp_path: Path) -> None:
    mine = Turns(tmp_path / "turns", 2, lambda: 1)
    mine.begin()

    def rest() -> None:
        with (tmp_path / "turns").open() as other, pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)

    mine.alone(rest)
    mine.alone(lambda: pytest.fail("it is alone"))
    mine.end()


def test_a_share_of_the_memory_and_all_of_it_for_one_that_stays_alone(tmp_path: Path) -> None:
    mine = Turns(tmp_path / "turns", 8, lambda: 1)
    assert mine.share == 0.125
    mine.begin()
    mine.alone(stay=True)
    mine.beside()
    assert mine.share == 1.0
    mine.end()
    assert mine.share == 0.125
    with (tmp_path / "turns").open() as free:
        fcntl.flock(free, fcntl.LOCK_EX | fcntl.LOCK_NB)


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a clock did, in order."""
    found: list[str] = []
    for name in ("alone", "beside"):
        monkeypatch.setattr(turns, name, lambda *_, name=name: found.append(name))
    return found


def test_costs_and_rounds_are_timed_alone_and_captures_are_made_beside_others(
    heard: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = IsolatedCardClock.__new__(IsolatedCardClock)
    clock._pools, clock._sets, clock.launches = [object()], [], 1  # type: ignore[list-item]
    clock._seconds = clock._overhead = 0.0
    clock._workers = {"candidate": SimpleNamespace(remote=SimpleNamespace(stop=None))}  # type: ignore[dict-item]
    for name in ("_open", "_load", "_measure_costs", "_run_once", "_beyond_an_order"):
        setattr(clock, name, lambda *_, name=name: heard.append(name) or 0.0)
    monkeypatch.setattr(GraphClock, "_prepare", lambda self: self._capture_all([]))
    monkeypatch.setattr(GraphClock, "_capture_all", lambda self, planned: heard.append("capture"))
    monkeypatch.setattr(GraphClock, "rounds", lambda self, count: heard.append("rounds"))
    monkeypatch.setattr(GraphClock, "timed_calls", lambda self, count: heard.append("timed calls"))
    clock._prepare()
    clock.rounds(1)
    clock.timed_calls(1)
    assert heard[:5] == ["_open", "_load", "alone", "_measure_costs", "beside"]
    assert sorted(heard[5:9]) == ["_run_once", "_run_once", "capture", "capture"]  # of both sides, in two threads
    assert heard[9:] == ["alone", "_beyond_an_order", "alone", "rounds", "beside", "timed calls"]


def test_others_processes_are_known_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = IsolatedCardClock.__new__(IsolatedCardClock)
    clock._workers = {"candidate": SimpleNamespace(remote=SimpleNamespace(running=True))}  # type: ignore[dict-item]
    monkeypatch.setattr(turns, "contexts_beside", lambda: 7)
    from perfsuite.device.telemetry import Telemetry

    monkeypatch.setattr(GraphClock, "telemetry", lambda self: Telemetry(other_processes=9))
    assert clock.telemetry().other_processes == 1


def test_another_thread_begins_no_work_while_one_is_alone_and_the_end_of_a_process_waits_for_nobody(
    tmp_path: Path,
) -> None:
    """A process for the next candidate starts in a thread: its context must not be made while this one is timed."""
    mine, begun = Turns(tmp_path / "turns", 1, lambda: 1), threading.Event()

    def start() -> None:
        mine.begin()
        begun.set()
        mine.end()

    for stay in (False, True):
        begun.clear()
        mine.begin()
        mine.alone(stay=stay)
        assert mine.guarded is not stay
        mine.begin()  # its own work goes on
        mine.end()
        mine.begin(0)
        mine.end(0)
        threading.Thread(target=start, daemon=True).start()
        assert begun.wait(0.2 if not stay else LONGEST) is stay
        mine.beside()
        assert begun.wait(LONGEST)
        mine.end()


def pauses(path: Path, in_process: bool, working: Any, told: Any) -> None:
    mine = Turns(path, 2, lambda: 1, in_process=in_process)
    mine.begin()
    paused: list[bool] = []
    join = mine._join
    mine._join = lambda: (join(), paused.append(True))[0]  # type: ignore[method-assign]
    working.set()
    until = time.monotonic() + (LONGEST if in_process else 1.0)
    while time.monotonic() < until and not paused:
        before = time.monotonic()
        mine.pause()
        if paused:
            told.put((before, time.monotonic()))
        time.sleep(0.01)
    mine.end()


@pytest.mark.parametrize("in_process", [True, False])
def test_work_pauses_for_those_who_wait_unless_other_processes_go_on_with_it(tmp_path: Path, in_process: bool) -> None:
    working, told = FORK.Event(), FORK.Queue()
    other = FORK.Process(target=pauses, args=(tmp_path / "turns", in_process, working, told))
    other.start()
    assert working.wait(LONGEST)
    mine = Turns(tmp_path / "turns", 2, lambda: 1)
    mine.begin()
    mine.alone()
    begun = time.monotonic()
    time.sleep(0.3)
    ended = time.monotonic()
    mine.end()
    other.join(LONGEST)
    if in_process:
        before, after = told.get(timeout=LONGEST)
        assert before <= begun
        assert ended <= after
    else:
        assert told.empty()


def test_a_pause_is_none_where_nobody_waits_or_the_caller_is_alone(tmp_path: Path) -> None:
    mine = Turns(tmp_path / "turns", 2, lambda: 1, in_process=True)
    mine.pause()  # does not work
    mine.begin()
    mine.pause()
    mine.alone()
    mine.pause()
    assert mine.is_alone
    mine.end()
    assert not mine.is_alone
    mine.leave()
    assert not list(tmp_path.glob("turns.[0-9]*"))


def test_a_block_in_which_another_process_works_instead(tmp_path: Path) -> None:
    mine = Turns(tmp_path / "turns", 2, lambda: 1, in_process=True)
    with mine.paused():  # who does not work has nothing to pause
        pass
    for stays in (False, True):
        mine.begin()
        mine.begin()
        mine.alone(stay=stays)
        with mine.paused():
            ready = FORK.Event()
            other = FORK.Process(target=holds, args=(tmp_path / "turns", ready))
            other.start()
            assert ready.wait(LONGEST)
            assert other.pid is not None
            os.kill(other.pid, signal.SIGKILL)
            other.join()
        assert mine.is_alone == stays
        mine.end()
        mine.end()
    assert not mine.is_alone
