"""Judges many candidates over HTTP, while processes and the service itself are killed.

    python -m tests.judge.thousand --http --jobs 1000 --workers 2 --output records/h200/judge.json

It uses the machine's cards, or its processors. The record has throughput, seconds of each stage and faults. The exit
code is 1 if a job has no verdict, another one later, or another one than it should have.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import statistics
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from drawn import HERE, Drawn, drawn
from served import Served

from perfsuite.record.atomic_write import write_whole

EACH = 20
"""Verdicts after which a process that judges is killed."""
OPTIONS = ("--problems", str(HERE / "problems"), "--trust-candidates", "--drain", "1", "--rate", "1000")


@dataclass
class Outcome:
    """What became of the jobs."""

    ended: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Identifier -> the job, as the client first saw its end."""
    later: list[str] = field(default_factory=list)
    """Identifiers of jobs that were different when the client asked again."""
    killed: int = 0
    """Processes that were killed."""
    restarts: int = 0
    """Starts of the service after it was ended."""

    @property
    def deaths(self) -> int:
        """Deaths of a process that had a job."""
        return sum(one["deaths"] for one in self.ended.values())

    def faults(self, jobs: Sequence[Drawn]) -> list[str]:
        """One sentence for each job without exactly one right verdict."""
        lost = [f"{job.id} has no verdict" for job in jobs if job.id not in self.ended]
        found = (job.fault(self.ended[job.id]["answer"]) for job in jobs if job.id in self.ended)
        return [*lost, *(f"{id} changed after its end" for id in self.later), *filter(None, found)]


def judge_all(
    served: Served, jobs: Sequence[Drawn], restarts: Mapping[int, signal.Signals], *, seed: int = 0, kill: bool = True
) -> Outcome:
    """Send the jobs, and wait for all of them.

    restarts: verdicts -> the signal that ends the service then. kill: end a process after every EACH verdicts.
    """
    found, draw, left = Outcome(), random.Random(seed), dict(restarts)
    sent = [{"id": job.id, "candidate": job.candidate, "problem": job.problem, "terms": job.terms} for job in jobs]
    for begin in range(0, len(sent), 1000):
        got = served.insist("POST", "/v1/batches", {"jobs": sent[begin : begin + 1000]})
        assert got.status == 202, got
    while missing := [job.id for job in jobs if job.id not in found.ended][:1000]:
        got = served.insist("POST", "/v1/jobs/wait", {"ids": missing, "seconds": 20})
        found.ended |= {one["id"]: one for one in got.value["jobs"]}
        if kill and len(found.ended) // EACH > found.killed and served.kill_worker(draw.randrange(1000)):
            found.killed += 1
        if left and len(found.ended) >= min(left):
            number = left.pop(min(left))
            assert served.end(number) == (0 if number is signal.SIGTERM else -number), served.log.read_text()
            served.start()
            found.restarts += 1
    for job in jobs:
        if served.insist("GET", f"/v1/jobs/{job.id}").value != found.ended[job.id]:
            found.later.append(job.id)
    return found


def spread(values: Iterable[float]) -> dict[str, float]:
    """The median, the 95th of a hundred, and the largest."""
    ordered = sorted(values)
    cut = ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]
    return {"median": statistics.median(ordered), "p95": cut, "most": ordered[-1], "jobs": len(ordered)}


def measured(jobs: Sequence[Drawn], found: Outcome, workers: int) -> dict[str, Any]:
    """The record of a run."""
    ended = list(found.ended.values())
    seconds = max(one["ended"] for one in ended) - min(one["made"] for one in ended)
    stages: dict[str, list[float]] = {}
    for one in ended:
        for stage, value in one["answer"]["seconds"].items():
            stages.setdefault(stage, []).append(value)
        stages.setdefault("wait", []).append(one["began"] - one["made"])
    kinds: dict[str, int] = {}
    for job in jobs:
        kinds[job.kind] = kinds.get(job.kind, 0) + 1
    workloads = [workload for one in ended for workload in one["answer"]["workloads"]]
    return {
        "jobs": len(jobs),
        "kinds": kinds,
        "workers": workers,
        "seconds": seconds,
        "jobs_per_hour": 3600.0 * len(ended) / seconds,
        "stages": {stage: spread(values) for stage, values in stages.items()},
        "workers_killed": found.killed,
        "service_restarts": found.restarts,
        "deaths": found.deaths,
        "isolation": sorted({str(one["isolation"]) for one in workloads if one["isolation"]}),
        "faults": found.faults(jobs),
    }


def main(words: Sequence[str]) -> int:
    """Run the jobs and write the record."""
    from perfsuite.device.cards import usable_devices
    from perfsuite.record.fingerprint import environment

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1000, metavar="N", help="(default: 1000)")
    parser.add_argument("--workers", type=int, metavar="N", help="processes (default: all cards, or 2)")
    parser.add_argument("--seed", type=int, default=0, help="draws the jobs and those that are killed (default: 0)")
    parser.add_argument("--calm", action="store_true", help="kill nothing")
    parser.add_argument("--output", type=Path, metavar="FILE", help="the record; what else it holds stays there")
    given = parser.parse_args(words)
    cards = usable_devices(os.environ).cards
    device, workers = "cuda" if cards else "cpu", given.workers or len(cards) or 2
    jobs = drawn(given.jobs, given.seed, device=device)
    restarts = {given.jobs * 35 // 100: signal.SIGKILL, given.jobs * 70 // 100: signal.SIGTERM}
    with tempfile.TemporaryDirectory() as folder:
        limits = ("--queued-per-client", str(given.jobs))
        with Served(Path(folder, "serve"), *OPTIONS, *limits, jobs=workers, device=device) as served:
            found = judge_all(served, jobs, {} if given.calm else restarts, seed=given.seed, kill=not given.calm)
    told = measured(jobs, found, workers)
    print(json.dumps(told, indent=1))
    if given.output is not None:
        kept = json.loads(given.output.read_text()) if given.output.exists() else {}
        own = {**told, "environment": asdict(environment(HERE.parents[1], device=device))}
        write_whole(given.output, json.dumps({**kept, "http": own}, indent=1) + "\n")
    return int(bool(told["faults"]))
