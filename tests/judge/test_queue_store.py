"""The durable queue: an accepted job is answered once, whatever ends in between."""

from __future__ import annotations

import dataclasses
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from perfsuite.judge.engine import Terms
from perfsuite.judge.jobs import Job, Turn
from perfsuite.judge.pool import Pool
from perfsuite.judge.promise import Stream
from perfsuite.judge.queue_store import Queue
from perfsuite.judge.stored import ConflictError, FullError, Limits, State
from perfsuite.outcome import UserError

PROBLEM = {"family": "gemm", "m": 8, "n": 8, "k": 8}
TERMS = Terms(timed=False)


def job(id: str, text: str = "def run(a, b):\n    return a @ b\n") -> Job:
    return Job.of(text, PROBLEM, id=id)


def taken(queue: Queue) -> Turn:
    turn = queue.take()
    assert turn is not None
    return turn


def answer(turn: Turn, reason: str = "checked") -> dict[str, str]:
    return {"id": turn.job.id, "verdict": "MET", "reason": reason}


def one(queue: Queue, id: str, client: str = "a") -> State:
    (stored,) = queue.find(client, [id])
    return stored.state


def test_the_same_job_is_one_job_and_another_content_is_refused(tmp_path: Path) -> None:
    queue = Queue(tmp_path / "queue.db")
    first, again = queue.submit("a", [(job("x"), TERMS)])[0], queue.submit("a", [(job("x"), TERMS)])[0]
    assert (first.new, again.new, again.made) == (True, False, first.made)
    with pytest.raises(ConflictError, match="'x'"):
        queue.submit("a", [(job("y"), TERMS), (job("x", "def run(a, b):\n    return b\n"), TERMS)])
    with pytest.raises(ConflictError):
        queue.submit("a", [(job("x"), dataclasses.replace(TERMS, at_least=0.5))])
    assert queue.find("a", ["y"]) == []  # all of a batch, or nothing
    assert queue.find("b", ["x"]) == []
    queue.submit("b", [(job("x", "def run(a, b):\n    return b\n"), TERMS)])
    assert queue.counts()[State.QUEUED] == 2
    taken(queue)
    queue.answered(taken(queue), {"verdict": "MET"})
    assert not queue.submit("b", [(job("x", "def run(a, b):\n    return b\n"), TERMS)])[0].new
    queue.close()


def test_the_first_answer_counts_also_after_a_death(tmp_path: Path) -> None:
    queue, told = Queue(tmp_path / "queue.db"), []
    queue.listen(lambda client, stored: told.append((client, stored.id, stored.state)))
    queue.submit("a", [(job("x"), TERMS)])
    slow = taken(queue)
    queue.died(slow, "gone")
    fast = taken(queue)
    queue.answered(slow, answer(slow, "first"))
    queue.answered(fast, answer(fast, "second"))
    (stored,) = queue.find("a", ["x"])
    assert (stored.state, stored.answer, stored.deaths) == (State.DONE, answer(slow, "first"), 1)
    assert told == [("a", "x", State.DONE)]
    queue.close()


def test_three_deaths_give_an_answer(tmp_path: Path) -> None:
    queue = Queue(tmp_path / "queue.db")
    queue.submit("a", [(job("x"), TERMS)])
    for _ in range(3):
        queue.died(taken(queue), "exit code 9")
    (stored,) = queue.find("a", ["x"])
    assert stored.answer is not None
    assert (stored.answer["verdict"], stored.answer["reason"]) == ("UNDECIDED", "worker-lost")
    assert "exit code 9" in stored.answer["sentence"]
    queue.close()


def test_a_graceful_end_gives_jobs_back_and_counts_no_death(tmp_path: Path) -> None:
    path = tmp_path / "queue.db"
    for _ in range(4):
        queue = Queue(path)
        if not queue.find("a", ["x"]):
            queue.submit("a", [(job("x"), TERMS)])
        turn = taken(queue)
        queue.close_for_takers()
        assert queue.take() is None
        queue.died(turn, "ended")
        queue.close()
    queue = Queue(path)
    assert [(stored.state, stored.deaths) for stored in queue.find("a", ["x"])] == [(State.QUEUED, 0)]
    queue.close()


KILLED = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, {folder!r})
from test_queue_store import TERMS, job, taken
from perfsuite.judge.queue_store import Queue
queue = Queue(Path({path!r}))
if not queue.find("a", ["x"]):
    queue.submit("a", [(job("x"), TERMS), (job("y"), TERMS)])
    queue.answered(taken(queue), {{"verdict": "MET"}})
assert taken(queue).job.id == "y"
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_process_loses_no_job_and_a_job_that_kills_it_is_given_up(tmp_path: Path) -> None:
    path, folder = tmp_path / "queue.db", str(Path(__file__).parent)
    for deaths in (1, 2, 3):
        code = KILLED.format(folder=folder, path=str(path))
        assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -signal.SIGKILL
        if deaths < 3:
            with sqlite3.connect(path) as seen:
                assert seen.execute("SELECT id, state FROM jobs").fetchall() == [("x", "done"), ("y", "running")]
    queue = Queue(path)
    first, second = queue.find("a", ["x", "y"])
    assert first.answer == {"verdict": "MET"}
    assert second.answer is not None
    assert second.answer["reason"] == "worker-lost"
    queue.close()


def test_one_process_at_a_time_and_no_other_file(tmp_path: Path) -> None:
    queue = Queue(tmp_path / "queue.db")
    with pytest.raises(UserError, match="in use by another process"):
        Queue(tmp_path / "queue.db")
    queue.close()
    Queue(tmp_path / "queue.db").close()
    (tmp_path / "text").write_text("no database\n" * 1000)
    with pytest.raises(UserError, match="not a database"):
        Queue(tmp_path / "text")
    assert os.stat(tmp_path / "queue.db").st_mode & 0o077 == 0


def test_clients_take_turns_and_limits_hold(tmp_path: Path) -> None:
    queue = Queue(tmp_path / "queue.db", Limits(queued_per_client=5, queued=8, kept_per_client=3))
    queue.submit("a", [(job(f"a{number}"), TERMS) for number in range(5)])
    with pytest.raises(FullError, match="at most 5 jobs of one client"):
        queue.submit("a", [(job("more"), TERMS)])
    assert not queue.submit("a", [(job("a1"), TERMS)])[0].new  # what is there takes no room
    queue.submit("b", [(job(f"b{number}"), TERMS) for number in range(3)])
    with pytest.raises(FullError, match="at most 8 jobs"):
        queue.submit("b", [(job("more"), TERMS)])
    turns = [taken(queue) for _ in range(8)]
    assert [turn.job.id for turn in turns] == ["a0", "b0", "a1", "b1", "a2", "b2", "a3", "a4"]
    for turn in turns:
        queue.answered(turn, answer(turn))
    assert queue.prune() == 2
    assert [stored.id for stored in queue.listing("a")] == ["a2", "a3", "a4"]
    assert [stored.id for stored in queue.listing("a", after="a2", most=1)] == ["a3"]
    queue.close()
    later = Queue(tmp_path / "queue.db", Limits(keep_seconds=0.0))
    assert later.prune() == 6
    later.close()


def test_a_cancelled_job_gets_no_answer(tmp_path: Path) -> None:
    queue = Queue(tmp_path / "queue.db")
    queue.submit("a", [(job("x"), TERMS), (job("y"), TERMS)])
    running = taken(queue)
    assert queue.cancel("b", "x") is None
    found = queue.cancel("a", "x")
    assert found is not None
    assert found[1] == running.key
    queue.died(running, "ended")
    queue.answered(running, answer(running))
    assert (one(queue, "x"), one(queue, "y")) == (State.CANCELLED, State.QUEUED)
    queue.cancel("a", "y")
    assert queue.counts()[State.QUEUED] == 0
    queue.close()


def test_a_stream_goes_on_where_it_was(tmp_path: Path) -> None:
    plain, resumed = Stream(20.0), []
    queue = Queue(tmp_path / "queue.db")
    queue.submit("a", [(job(str(number)), TERMS) for number in range(20)])
    for number in range(20):
        if number == 10:
            queue.close()
            queue = Queue(tmp_path / "queue.db")
        turn = taken(queue)
        assert turn.terms.alpha == pytest.approx(plain.next_alpha())
        queue.answered(turn, answer(turn, "fast-enough" if number % 3 else "checked"))
        if number % 3:
            plain.decided()
        resumed.append(turn.terms.alpha)
    assert len(set(resumed)) > 10
    queue.close()


def test_a_pool_judges_a_queue_that_grows_and_ends_a_cancelled_job(tmp_path: Path) -> None:
    queue, ready = Queue(tmp_path / "queue.db"), threading.Condition()
    done: set[str] = set()

    def heard(client: str, stored: object) -> None:
        with ready:
            done.add(stored.id)  # type: ignore[attr-defined]
            ready.notify_all()

    queue.listen(heard)
    with Pool(Terms(), jobs=1) as pool:
        worker = threading.Thread(target=pool.work, args=(queue,))
        worker.start()
        queue.submit("a", [(job("slow", "import time\ntime.sleep(900)\ndef run(a, b):\n    return a @ b\n"), TERMS)])
        while one(queue, "slow") != State.RUNNING:
            time.sleep(0.01)
        found = queue.cancel("a", "slow")
        assert found is not None
        assert found[1] is not None
        while not pool.end(found[1]):  # the queue hands a turn out a moment before a process has it
            time.sleep(0.01)
        queue.submit("a", [(job("right"), TERMS), (job("wrong", "def run(a, b):\n    return b\n"), TERMS)])
        with ready:
            assert ready.wait_for(lambda: {"right", "wrong"} <= done, timeout=180)
        (state,) = pool.state
        assert (state.busy, state.starts) == (False, 2)
        queue.close_for_takers()
        worker.join(timeout=180)
        assert not worker.is_alive()
    verdicts = [stored.answer and stored.answer["verdict"] for stored in queue.find("a", ["slow", "right", "wrong"])]
    assert verdicts == [None, "MET", "WRONG"]
    queue.close()
