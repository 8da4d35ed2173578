"""Judges many candidates over HTTP, while processes and the service itself are killed.

    python -m tests.judge.thousand --http --jobs 1000 --workers 2 --output records/h200/judge.json

It uses the machine's cards, or its processors. The record has throughput, seconds of each stage and faults. The exit
code is 1 if a job has no verdict, another one later, or another one than it should have.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import signal
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from drawn import HERE, Drawn, drawn
from measured import Flow, Meanwhile, Outcome, kept_in, measured
from served import Served

RESTARTS = {0.35: signal.SIGKILL, 0.7: signal.SIGTERM}
EACH = 20
"""Verdicts after which a process that judges is killed."""
OPTIONS = ("--problems", str(HERE / "problems"), "--trust-candidates", "--drain", "1", "--rate", "1000")


def judge_all(
    served: Served,
    jobs: Sequence[Drawn],
    restarts: Mapping[float, signal.Signals],
    *,
    seed: int = 0,
    kill: bool = True,
    seconds: float = math.inf,
    told: Callable[[Outcome], object] = lambda _: None,
) -> Outcome:
    """Send the jobs, and wait for all of them.

    restarts: share of the verdicts, or of the time -> the signal that ends the service then. kill: end a process after
    every EACH verdicts.
    seconds: no more jobs are sent later than this. told: hears of new verdicts.
    """
    draw, left, flow = random.Random(seed), dict(restarts), Flow(jobs, seconds)
    found = Outcome(sent=flow.sent)
    while True:
        if new := flow.next(len(found.ended)):
            names = ("id", "candidate", "problem", "terms")
            got = served.insist("POST", "/v1/batches", {"jobs": [{n: getattr(one, n) for n in names} for one in new]})
            assert got.status == 202, got
        missing = [job.id for job in flow.sent if job.id not in found.ended][:1000]
        if not missing:
            break
        got = served.insist("POST", "/v1/jobs/wait", {"ids": missing, "seconds": 20})
        found.ended |= {one["id"]: one for one in got.value["jobs"]}
        found.tell(flow.sent)
        told(found)
        due = kill and len(found.ended) // EACH > found.killed
        if due and _survive(served) and served.kill_worker(draw.randrange(1000)):
            found.killed += 1
        if left and flow.share(len(found.ended)) >= min(left) and _survive(served):
            number = left.pop(min(left))
            assert served.end(number) == (0 if number is signal.SIGTERM else -number), served.log.read_text()
            served.start()
            found.restarts += 1
    for job in found.sent:
        if served.insist("GET", f"/v1/jobs/{job.id}").value != found.ended[job.id]:
            found.later.append(job.id)
    return found


def _survive(served: Served) -> bool:
    """True if no job that runs has lost two processes: a third death would rightly end that job."""
    running = served.insist("GET", "/v1/jobs?state=running&most=1000").value["jobs"]
    return all(one["deaths"] < 2 for one in running)


def main(words: Sequence[str]) -> int:
    """Run the jobs and write the record."""
    from perfsuite.device.cards import usable_devices

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1000, metavar="N", help="(default: 1000)")
    parser.add_argument("--workers", type=int, metavar="N", help="processes (default: all cards, or 2)")
    parser.add_argument("--beside", type=int, default=1, metavar="N", help="processes on each card (default: 1)")
    parser.add_argument("--seed", type=int, default=0, help="draws the jobs and those that are killed (default: 0)")
    parser.add_argument(
        "--seconds", type=float, default=math.inf, metavar="S", help="send no more jobs after S seconds"
    )
    parser.add_argument("--calm", action="store_true", help="kill nothing")
    parser.add_argument("--output", type=Path, metavar="FILE", help="the record; what else it holds stays there")
    given = parser.parse_args(words)
    cards = usable_devices(os.environ).cards
    device, workers = "cuda" if cards else "cpu", given.workers or len(cards) or 2
    processes = workers * given.beside if cards else workers
    jobs = drawn(given.jobs, given.seed, device=device)
    with tempfile.TemporaryDirectory() as folder:
        limits = ("--queued-per-client", str(given.jobs), "--beside", str(given.beside))
        with Served(Path(folder, "serve"), *OPTIONS, *limits, jobs=workers, device=device) as served:
            meanwhile = Meanwhile(given.output, "http", processes, device)
            options: dict[str, Any] = {"seed": given.seed, "kill": not given.calm, "seconds": given.seconds}
            found = judge_all(served, jobs, {} if given.calm else RESTARTS, told=meanwhile.at, **options)
    told = measured(found.sent, found, processes)
    print(json.dumps(told, indent=1))
    kept_in(given.output, "http", told, device)
    return int(bool(told["faults"]))
