"""A hundred jobs over HTTP: each has one verdict, although processes and the service itself are killed meanwhile."""

from __future__ import annotations

import collections
import random
import signal
from pathlib import Path
from typing import Any

import pytest
from drawn import BAD, HERE, drawn
from served import Served

pytest.importorskip("fastapi", reason="needs pip install perfsuite[serve]")
pytest.importorskip("uvicorn", reason="needs pip install perfsuite[serve]")
pytest.importorskip("prometheus_client", reason="needs pip install perfsuite[serve]")
JOBS, EACH = 100, 20
RESTARTS = {35: signal.SIGKILL, 70: signal.SIGTERM}
"""Verdicts -> the signal that the service gets then."""


def test_each_of_a_hundred_jobs_has_one_verdict(tmp_path: Path) -> None:
    jobs = {job.id: job for job in drawn(JOBS)}
    kinds = collections.Counter(job.kind for job in jobs.values())
    assert set(kinds) == {*BAD, "plain"}
    assert kinds["plain"] == JOBS * 9 // 10
    options = ("--problems", str(HERE / "problems"), "--trust-candidates", "--drain", "1", "--rate", "1000")
    draw, killed, restarts = random.Random(7), 0, dict(RESTARTS)
    first: dict[str, dict[str, Any]] = {}
    with Served(tmp_path / "serve", *options, jobs=2) as served:
        sent = [
            {"id": job.id, "candidate": job.candidate, "problem": job.problem, "terms": job.terms}
            for job in jobs.values()
        ]
        assert served.insist("POST", "/v1/batches", {"jobs": sent}).status == 202
        while missing := [id for id in jobs if id not in first]:
            got = served.insist("POST", "/v1/jobs/wait", {"ids": missing, "seconds": 20}).value
            first |= {one["id"]: one for one in got["jobs"]}
            if len(first) // EACH > killed and served.kill_worker(draw.randrange(2)):
                killed += 1
            if restarts and len(first) >= min(restarts):
                code = served.end(number := restarts.pop(min(restarts)))
                assert code == (0 if number is signal.SIGTERM else -number)
                served.start()
        again = served.ask("GET", "/v1/jobs?most=1000").value["jobs"]
        assert [one["id"] for one in again] == list(jobs)
        assert {one["state"] for one in again} == {"done"}
        assert {id: served.ask("GET", f"/v1/jobs/{id}").value for id in jobs} == first
        assert served.ask("POST", "/v1/batches", {"jobs": sent}).value["jobs"] == [first[id] for id in jobs]
    assert killed >= JOBS // EACH - 1
    assert sum(one["deaths"] for one in first.values()) >= 1
    faults = [said for job in jobs.values() if (said := job.fault(first[job.id]["answer"]))]
    assert not faults, "\n".join(faults)
