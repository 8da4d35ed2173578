"""Jobs that are sent while a time runs: no more of them than are waited for, and none when it is over."""

from __future__ import annotations

from typing import Any

import measured
import pytest
from measured import Flow


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
