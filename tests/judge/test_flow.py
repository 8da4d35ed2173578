"""Jobs that are sent while a time runs, and the record of a run that is cut."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import measured
import pytest
from drawn import drawn
from measured import Flow, Meanwhile, Outcome


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(measured.time, "monotonic", lambda: now[0])
    return now


JOBS: Any = list(range(1500))


def test_without_a_time_all_are_sent_as_far_as_one_batch_takes() -> None:
    flow = Flow(JOBS)
    assert flow.next(0) == JOBS[:1000]
    assert flow.next(0) == []
    assert flow.next(600) == JOBS[1000:1500]
    assert (flow.sent, flow.share(750)) == (JOBS, 0.5)


def test_with_a_time_a_few_are_ahead_and_none_is_sent_later(clock: list[float]) -> None:
    flow = Flow(JOBS, 200.0)
    assert flow.next(0) == JOBS[:32]
    assert flow.next(10) == JOBS[32:42]
    clock[0] += 150.0
    assert flow.share(10) == 0.75  # of the time
    assert flow.share(1350) == 0.9  # of the jobs
    clock[0] += 51.0
    assert flow.next(40) == []
    assert flow.sent == JOBS[:42]


def test_a_run_that_is_cut_leaves_its_figures(clock: list[float], tmp_path: Path) -> None:
    jobs, record = drawn(10), tmp_path / "judge.json"
    found, meanwhile = Outcome(sent=jobs), Meanwhile(record, "http", 2, "cpu")
    answer = {"verdict": "UNDECIDED", "reason": "", "stage": "", "sentence": "no", "seconds": {}, "workloads": []}
    found.ended[jobs[0].id] = {"answer": answer, "deaths": 1, "made": 1.0, "began": 2.0, "ended": 3.0}
    meanwhile.at(found)
    assert not record.exists()  # it would take longer to write at each verdict than to judge
    clock[0] += 11.0
    meanwhile.at(found)
    told = json.loads(record.read_text())["http"]
    assert (told["whole"], told["jobs"], told["answered"], told["deaths"]) == (False, 10, 1, 1)
    assert len(told["faults"]) == 1  # of the job that has ended; the others wait
    assert told["jobs_per_hour"] == 1800.0
