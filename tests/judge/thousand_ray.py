"""Judges a thousand candidates over Ray, while workers are killed and one of two machines goes away.

    python -m tests.judge.thousand_ray --jobs 1000 --output records/h200/judge-ray.json

The cluster is this machine's: two nodes, each with half of the cards, or with a processor. The output has throughput,
seconds per stage and the faults. The exit code is 1 if a job has no verdict, two, or another one than it should have.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import queue
import random
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perfsuite.judge.engine import Terms
from perfsuite.judge.jobs import Job
from perfsuite.judge.pool import WORKER, Pool
from perfsuite.judge.queue_store import Queue
from perfsuite.judge.stored import Limits, State, Stored
from perfsuite.record.atomic_write import write_whole
from perfsuite.settings import DeviceKind
from perfsuite.workers.ray_cluster import connected

HERE = Path(__file__).resolve().parent
EATS_MEMORY = """
import torch
def run(a, b):
    kept = []
    while True:
        kept.append(torch.empty(1 << 30, device=a.device))
"""
FORKS = """
import os, time
def run(a, b):
    while True:
        if os.fork() == 0:
            time.sleep(60)
"""
FAILED, LATE = "candidate-failed", "timed-out"
BAD: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("broken/aborts.py", (FAILED,), "run"),
    ("broken/segmentation_fault.py", (FAILED,), "run"),
    ("broken/hangs.py", (LATE,), "run"),
    ("broken/brackets.py", ("does-not-parse",), "parse"),
    ("broken/missing_semicolon.cpp", ("does-not-compile",), "compile"),
    ("cheating/zeros.py", (), ""),
    ("cheating/remembers_the_first.py", (), ""),
    ("cheating/replaces_allclose.py", (), ""),
    (EATS_MEMORY, (FAILED,), "run"),
    (FORKS, (FAILED, LATE), "run"),  # its processes are ended when they are too many; it may be late before that
)
"""Path or text, the reasons that are right, and the stage; every tenth job is one of these. All are WRONG."""
GEMM = {"family": "gemm", "m": 32, "n": 24, "k": 16, "dtype": "float32"}
PATIENT, IMPATIENT = 30.0, 3.0
"""Limits of one request: a busy machine must not make an honest candidate late."""
ANSWER_SECONDS = 240.0
KILL_SECONDS = 60.0


@dataclass(frozen=True)
class Task:
    """A job, its terms, and the answer that it should get; no reasons: any."""

    job: Job
    terms: Terms
    verdict: str
    reasons: tuple[str, ...]
    stage: str

    def fault(self, answer: Mapping[str, Any]) -> str | None:
        """A sentence if the answer is not the right one."""
        right = answer["verdict"] == self.verdict and answer["reason"] in (self.reasons or (answer["reason"],))
        if right and self.stage in ("", answer["stage"]):
            return None
        found = f"{answer['verdict']} {answer['reason']} {answer['stage']}: {answer['sentence']}"
        return f"{self.job.id}: {found}; expected {self.verdict} {' or '.join(self.reasons)} {self.stage}"


def tasks(count: int, device: DeviceKind = "cpu", *, seed: int = 0) -> list[Task]:
    """That many jobs: a tenth from BAD, the others right, slow and wrong candidates, drawn by the seed."""
    draw = random.Random(seed)
    suffixes = (".py",) if device == "cuda" else (".py", ".cpp")
    honest = [one for kind in ("right", "slow", "wrong") for one in sorted(HERE.glob(f"candidates/{kind}/*.*"))]
    honest = [one for one in honest if one.suffix in suffixes]
    bad = [one for one in BAD if "\n" in one[0] or one[0].endswith(suffixes)]
    made = []
    for number in range(count):
        if number % 10 == 9:
            text, reasons, stage = bad[number // 10 % len(bad)]
            made.append(_bad(number, text, reasons, stage, device))
        else:
            made.append(_honest(number, draw.choice(honest), device))
    return made


def _honest(number: int, file: Path, device: DeviceKind) -> Task:
    """Not timed: a slow candidate is right."""
    wrong = file.parent.name == "wrong"
    job = Job.of(file, _problem(file), id=f"{number} {file.stem}")
    terms = Terms(device=device, timed=False, run_seconds=PATIENT)
    return Task(job, terms, "WRONG" if wrong else "MET", () if wrong else ("checked",), "right")


def _bad(number: int, text: str, reasons: tuple[str, ...], stage: str, device: DeviceKind) -> Task:
    if "\n" in text:
        candidate, problem, name = {"files": {"main.py": text}}, GEMM, reasons[0]
    else:
        file = HERE / "candidates" / text
        candidate, problem, name = file, _problem(file), file.stem
    seconds = IMPATIENT if LATE in reasons else PATIENT
    job = Job.of(candidate, problem, id=f"{number} {name}")
    terms = Terms(device=device, timed=text.startswith("cheating"), seconds=0.3, run_seconds=seconds)
    return Task(job, terms, "WRONG", reasons, stage)


def _problem(file: Path) -> str:
    name = file.read_text().partition("\n")[0].lstrip("#/ ").partition(": ")[0]
    return str(next(HERE.glob(f"problems/{name}.*")))


@dataclass
class Outcome:
    """What a run came to."""

    answers: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    twice: list[str] = field(default_factory=list)
    kills: int = 0
    deaths: int = 0
    seconds: float = 0.0
    workers: int = 0

    def faults(self, wanted: Sequence[Task]) -> list[str]:
        """A sentence for each job without exactly one right verdict."""
        lost = [f"{one.job.id}: no verdict" for one in wanted if one.job.id not in self.answers]
        wrong = [one.fault(self.answers[one.job.id]) for one in wanted if one.job.id in self.answers]
        return [*lost, *(f"{one}: two verdicts" for one in self.twice), *filter(None, wrong)]


def judge_all(
    wanted: Sequence[Task], address: str, *, kill_every: int = 20, midway: Callable[[], None] = lambda: None
) -> Outcome:
    """Judge the tasks on all workers of a local cluster; kill one after every `kill_every` verdicts."""
    found, ended = Outcome(), queue.SimpleQueue[Stored]()
    cards = wanted[0].terms.device == "cuda"
    with tempfile.TemporaryDirectory() as folder, connected(address) as cluster:
        store = Queue(Path(folder) / "queue.db", Limits(queued_per_client=len(wanted)))
        store.listen(lambda _, stored: ended.put(stored))
        cluster.check(cluster.machines)  # with a sandbox or without one: `isolation` says which
        workers = cluster.workers(("-m", WORKER), cards=cards)
        found.workers = len(workers)
        begin = time.monotonic()
        store.submit("corpus", [(one.job, one.terms) for one in wanted])
        with Pool(wanted[0].terms, children=workers) as pool:
            at_work = threading.Thread(target=pool.work, args=(store,), daemon=True)
            at_work.start()
            for number in range(1, len(wanted) + 1):
                stored = ended.get(timeout=ANSWER_SECONDS)
                assert stored.answer is not None
                if stored.id in found.answers:
                    found.twice.append(stored.id)
                found.answers[stored.id] = stored.answer
                found.deaths += stored.deaths
                if number % kill_every == 0 and number < len(wanted):
                    found.kills += _kill(pool, store, [one.job.id for one in wanted])
                if number == len(wanted) // 2:
                    midway()
            found.seconds = time.monotonic() - begin
            store.close_for_takers()
        while not ended.empty():
            found.twice.append(ended.get().id)
        store.close()
    return found


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
    """(address, a function that removes the second node) of a cluster of this machine; each node has half the cards."""
    from ray.cluster_utils import Cluster

    half = -(-len(cards) // 2)
    places: list[dict[str, Any]] = []
    for own in (cards[:half], cards[half:]):
        place: dict[str, Any] = {"num_cpus": max(len(own), 1), "num_gpus": len(own)}
        places.append({**place, "env_vars": {"CUDA_VISIBLE_DEVICES": ",".join(own)}} if cards else place)
    cluster = Cluster(initialize_head=True, head_node_args={**places[0], "include_dashboard": False})
    try:
        second = cluster.add_node(**places[1])
        yield cluster.address, lambda: cluster.remove_node(second, allow_graceful=False)
    finally:
        cluster.shutdown()


def main(words: Sequence[str] | None = None) -> int:
    """Run, and write the outcome."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1000, metavar="N")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, metavar="FILE")
    given = parser.parse_args(words)
    from perfsuite.device.cards import usable_devices

    cards = [card.selector for card in usable_devices(os.environ).cards]
    wanted = tasks(given.jobs, "cuda" if cards else "cpu", seed=given.seed)
    with two_nodes(cards) as (address, remove):
        found = judge_all(wanted, address, midway=remove)
    workloads = [one for answer in found.answers.values() for one in answer["workloads"]]
    stages: dict[str, list[float]] = {}
    for answer in found.answers.values():
        for stage, seconds in answer["seconds"].items():
            stages.setdefault(stage, []).append(seconds)
    told = {
        "jobs": len(wanted),
        "workers": found.workers,
        "seconds": found.seconds,
        "jobs_an_hour": 3600 * len(wanted) / found.seconds,
        "seconds_of_a_stage": {name: statistics.median(values) for name, values in sorted(stages.items())},
        "workers_killed": found.kills,
        "nodes_removed": 1,
        "deaths_with_a_job": found.deaths,
        "isolation": sorted({one["isolation"] for one in workloads if one["isolation"]}),
        "faults": found.faults(wanted),
    }
    if given.output is not None:
        write_whole(given.output, json.dumps(told, indent=1) + "\n")
    print(json.dumps(told, indent=1))
    return int(bool(told["faults"]))


if __name__ == "__main__":
    sys.exit(main())
