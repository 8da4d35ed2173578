"""A hundred jobs over HTTP: each has one verdict, although processes and the service itself are killed meanwhile."""

from __future__ import annotations

import collections
from pathlib import Path

import pytest
from drawn import BAD, drawn
from measured import measured
from served import Served
from thousand_http import EACH, OPTIONS, RESTARTS, judge_all

for name in ("fastapi", "uvicorn", "prometheus_client"):
    pytest.importorskip(name, reason="needs pip install perfsuite[serve]")
JOBS = 100


def test_each_of_a_hundred_jobs_has_one_verdict(tmp_path: Path) -> None:
    jobs = drawn(JOBS)
    kinds = collections.Counter(job.kind for job in jobs)
    assert (set(kinds), kinds["plain"]) == ({*BAD, "plain"}, JOBS * 9 // 10)
    with Served(tmp_path / "serve", *OPTIONS, jobs=2) as served:
        found = judge_all(served, jobs, RESTARTS)
        listed = served.ask("GET", "/v1/jobs?most=1000").value["jobs"]
    assert [(one["id"], one["state"]) for one in listed] == [(job.id, "done") for job in jobs]
    assert not (faults := found.faults(jobs)), "\n".join(faults)
    assert (found.restarts, found.killed >= JOBS // EACH - 1, found.deaths >= 1) == (2, True, True), found.killed
    told = measured(jobs, found, 2)
    assert {"parse", "compile", "run", "right", "whole", "wait"} <= set(told["stages"])
    assert told["jobs_per_hour"] > 0
