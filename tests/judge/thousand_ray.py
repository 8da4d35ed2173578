"""Judges a thousand candidates over Ray, while workers are killed and one of two machines goes away.

    python -m tests.judge.thousand --ray --jobs 1000 --output records/h200/judge.json

The cluster is this machine's: two nodes, each with half of the cards, or with a processor. One card is both nodes';
then their workers take turns on it. The output has throughput, seconds per stage and the faults. The exit code is 1 if
a job has no verdict, two, or another one than it should have.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import queue
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from drawn import Drawn, drawn, problem_value
from measured import Flow, Meanwhile, Outcome, kept_in, measured

from perfsuite.device.cards import usable_devices
from perfsuite.judge.engine import Terms
from perfsuite.judge.jobs import Job
from perfsuite.judge.pool import WORKER, Pool
from perfsuite.judge.queue_store import Queue
from perfsuite.judge.stored import Limits, State, Stored
from perfsuite.settings import DeviceKind
from perfsuite.workers.ray_cluster import connected

ANSWER_SECONDS = 240.0
KILL_SECONDS = 60.0


def judge_all(
    jobs: Sequence[Drawn],
    address: str,
    device: DeviceKind = "cpu",
    *,
    kill_every: int = 20,
    beside: int = 1,
    seconds: float = math.inf,
    midway: Callable[[], None] = lambda: None,
    told: Callable[[Outcome], object] = lambda _: None,
) -> tuple[Outcome, int]:
    """Judge the jobs on all workers of a local cluster; kill one after every `kill_every` verdicts.

    seconds: no more jobs are sent later than this, from the first worker's start. told: hears of new verdicts.
    Return what became of them, and the number of workers.
    """
    found, ended, half = Outcome(), queue.SimpleQueue[Stored](), False
    with tempfile.TemporaryDirectory() as folder, connected(address) as cluster:
        store = Queue(Path(folder) / "queue.db", Limits(queued_per_client=len(jobs)))
        store.listen(lambda _, stored: ended.put(stored))
        cluster.check(cluster.machines)  # with a sandbox or without one: `isolation` says which
        workers = cluster.workers(("-m", WORKER), cards=device == "cuda", on_a_card=beside)
        with Pool(Terms(device=device), children=workers) as pool:
            at_work = threading.Thread(target=pool.work, args=(store,), daemon=True)
            at_work.start()
            flow = Flow(jobs, seconds)
            found.sent = flow.sent
            while True:
                number = len(found.ended) + 1
                if new := flow.next(number - 1):
                    store.submit("corpus", [_asked(one, device) for one in new])
                if number > len(flow.sent):
                    break
                stored = ended.get(timeout=ANSWER_SECONDS)
                if stored.id in found.ended:
                    found.later.append(stored.id)
                    continue
                found.ended[stored.id] = asdict(stored)
                if number % 10 == 0:
                    found.tell(flow.sent)
                    told(found)
                if number % kill_every == 0 and number < len(flow.sent):
                    found.killed += _kill(pool, store, [one.id for one in flow.sent])
                if not half and flow.share(number) >= 0.5:
                    half = True
                    midway()
            store.close_for_takers()
        while not ended.empty():
            found.later.append(ended.get().id)
        store.close()
    return found, len(workers)


def _asked(one: Drawn, device: DeviceKind) -> tuple[Job, Terms]:
    return Job.of(one.candidate, problem_value(one.problem), id=one.id), Terms(device=device, **one.terms)


def _kill(pool: Pool, store: Queue, ids: Sequence[str]) -> bool:
    """Kill a worker in the middle of a job that has lost none yet: three deaths would rightly end that job."""
    until = time.monotonic() + KILL_SECONDS
    while time.monotonic() < until:
        for job in store.listing("corpus", state=State.RUNNING):
            if not job.deaths and pool.end(str(ids.index(job.id) + 1)):  # the queue's keys count from 1
                return True
        time.sleep(0.01)
    return False


@contextlib.contextmanager
def two_nodes(cards: Sequence[str] = ()) -> Iterator[tuple[str, Callable[[], None]]]:
    """(address, a function that removes the second node) of a cluster of this machine."""
    from ray.cluster_utils import Cluster

    places = places_of(cards)
    cluster = Cluster(initialize_head=True, head_node_args={**places[0], "include_dashboard": False})
    try:
        second = cluster.add_node(**places[1])
        yield cluster.address, lambda: cluster.remove_node(second, allow_graceful=False)
    finally:
        cluster.shutdown()


def places_of(cards: Sequence[str]) -> list[dict[str, Any]]:
    """What each of two nodes has: half of the cards, the only card, or one processor, so that it has one worker."""
    half = -(-len(cards) // 2)
    places: list[dict[str, Any]] = []
    for own in (cards[:half], cards[half:] or cards):
        processors = len(os.sched_getaffinity(0)) * len(own) // max(len(cards), 2) if cards else 1
        place: dict[str, Any] = {"num_cpus": processors, "num_gpus": len(own)}
        places.append({**place, "env_vars": {"CUDA_VISIBLE_DEVICES": ",".join(own)}} if cards else place)
    return places


def main(words: Sequence[str] | None = None) -> int:
    """Run, and write the outcome."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1000, metavar="N")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--seconds", type=float, default=math.inf, metavar="S", help="send no more jobs after S seconds"
    )
    parser.add_argument("--beside", type=int, default=1, metavar="N", help="workers on each card (default: 1)")
    parser.add_argument("--output", type=Path, metavar="FILE", help="the record; what else it holds stays there")
    given = parser.parse_args(words)
    cards = [card.selector for card in usable_devices(os.environ).cards]
    device: DeviceKind = "cuda" if cards else "cpu"
    if len(cards) == 1 and given.beside < 2:
        parser.error("--beside is 1; both nodes use the only card, so it must be at least 2")
    jobs = drawn(given.jobs, given.seed, device=device)
    with two_nodes(cards) as (address, remove):
        meanwhile = Meanwhile(given.output, "ray", max(len(cards) * given.beside, 2), device)
        limits: dict[str, Any] = {"beside": given.beside, "seconds": given.seconds}
        found, workers = judge_all(jobs, address, device, **limits, midway=remove, told=meanwhile.at)
    told = {**measured(found.sent, found, workers), "nodes_removed": 1, "nodes_share_a_card": len(cards) == 1}
    kept_in(given.output, "ray", told, device)
    print(json.dumps(told, indent=1))
    return int(bool(told["faults"]))
