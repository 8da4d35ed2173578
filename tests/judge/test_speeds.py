"""The measurements of the judge's speed, with few cases."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

from fed import Fed
from thousand_perfray import Suite, compared
from thousand_speeds import GOALS, main

from perfsuite.judge.engine import Terms
from perfsuite.judge.jobs import MOST_DEATHS, Job
from perfsuite.report.judged import judge_table


def test_each_part_is_measured_and_kept_beside_what_was_there(tmp_path: Path) -> None:
    file = tmp_path / "judge.json"
    file.write_text(json.dumps({"http": {"jobs": 1}, "ray": {"jobs": 2}}))
    assert (
        main(["--parts", "in-process,isolated,triton", "--most", "3", "--seconds", "600", "--output", str(file)]) == 0
    )
    found = json.loads(file.read_text())
    assert (found["http"], found["ray"]) == ({"jobs": 1}, {"jobs": 2})
    assert set(found) == {"http", "ray", "in-process", "isolated"}
    assert found["isolated"]["jobs"] == 3
    assert found["isolated"]["goal"] == GOALS["isolated"]
    assert {"parse", "run", "right", "fast", "whole", "asked"} <= set(found["isolated"]["stages"])
    assert 0 < found["in-process"]["cases"] <= 3
    assert found["in-process"]["per_hour"] > 0
    shown = judge_table(file, {"table": "speeds"})
    assert f"{found['isolated']['per_hour']:,.0f} an hour" in shown


def fed(count: int, **more: Any) -> Fed:
    jobs = [Job(str(number), {"name": "candidate"}, "gemm") for number in range(count)]
    return Fed(jobs, Terms(), **{"seconds": 60.0, **more})


def test_no_job_begins_when_the_time_is_over() -> None:
    assert fed(3, seconds=-1.0).take() is None
    source = fed(2)
    first, second = source.take(), source.take()
    assert first is not None
    assert second is not None
    assert source.take() is None
    source.died(first, "killed")
    assert source.take() == first
    source.answered(first, {"verdict": "MET"})
    assert [(one.job.id, one.deaths) for one in source.ended] == [("0", 1)]


def test_each_process_gets_every_job_also_behind_a_thread_that_has_ended() -> None:
    source, taken = fed(2, each=True), []
    for _ in range(3):
        thread = threading.Thread(target=lambda: taken.append([source.take() is not None for _ in range(3)]))
        thread.start()
        thread.join()
    assert taken == [[True, True, False]] * 3


def test_a_job_whose_process_dies_too_often_is_lost() -> None:
    source = fed(1)
    for _ in range(MOST_DEATHS):
        turn = source.take()
        assert turn is not None
        source.died(turn, "killed")
    assert [one.answer["reason"] for one in source.ended] == ["worker-lost"]
    assert source.take() is None


def test_runs_without_cases_have_no_share() -> None:
    empty = Suite(4, [], None, 1.0)
    told = compared(empty, empty)
    assert (told["cases"], told["share"], told["different"]) == (0, None, [])
