"""How fast the judge is on this machine: cases an hour in one process and isolated, cards together, cold candidates.

    python -m tests.judge.thousand --speeds --seconds 60 --output records/h200/judge.json

in-process: checked and timed cases whose calls take under 100 us. isolated: the same for source text whose compiling is
cached, on one card. cards: on all cards, against one. triton, cuda: texts that no cache knows, from the moment at which
a process takes them to their answer; on cards alone. Each part ends by itself and is written when it ends.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from card_texts import cuda_texts, triton_texts
from drawn import HERE, of_file, of_text, problem_value
from fed import Ended, Fed
from measured import kept_in, spread

from perfsuite.device.cards import usable_devices
from perfsuite.judge.engine import Terms
from perfsuite.judge.jobs import Job
from perfsuite.judge.pool import Pool
from perfsuite.judge.problem_forms import task_of
from perfsuite.settings import DeviceKind, Settings

PARTS = ("in-process", "isolated", "cards", "triton", "cuda")
LONGEST_CALL = 1e-4
AT_LEAST = 0.05
"""The target of all timed cases: low, so that verdicts are the same on every machine."""
GOALS = {"in-process": 30_000.0, "isolated": 10_000.0, "cards": 1.9, "triton": 4.0, "cuda": 15.0}
"""Part -> cases an hour, the ratio, or the seconds within which 95 of 100 are answered."""
SHARED_TEXTS = 4
"""Different texts in each language of the parts `isolated` and `cards`."""
SHARED_SEED = 1 << 40
"""No other text has it: it is a part of the kernels' names."""
JOB_SECONDS, START_SECONDS = 60.0, 120.0
SIZES = (64, 96, 128, 192, 256)


def in_process(device: DeviceKind, seconds: float, most: int) -> dict[str, Any]:
    """Judge cases in this process until the time is over. Each candidate is a function that was never seen before."""
    from perfsuite.case.run import compare

    settings = Settings(device=device, seconds=1.0)
    shown, found, begin = Progress("in-process", most), [], 0.0
    for number, (problem, against, candidate) in enumerate(_cases(device)):
        if number == WARM:
            found, begin = [], time.perf_counter()
        if number >= WARM + most or (number > WARM and time.perf_counter() - begin > seconds):
            break
        one = compare(problem, candidate, against=against, at_least=AT_LEAST, settings=settings)
        found.append(one)
        shown.at(len(found))
    whole = time.perf_counter() - begin
    short = [one for one in found if one.candidate_seconds is not None and one.candidate_seconds < LONGEST_CALL]
    spent = sum(one.wall_seconds or 0.0 for one in short)
    return {
        "cases": len(short),
        "seconds": whole,
        "longer_or_untimed": len(found) - len(short),
        "per_hour": 3600.0 * len(short) / spent if spent else 0.0,
        "check_share": sum(one.check_seconds or 0.0 for one in short) / spent if spent else None,
        "case_seconds": spread([one.wall_seconds or 0.0 for one in short]) if short else None,
        "verdicts": dict(Counter(f"{one.verdict} {one.reason}" for one in found)),
    }


WARM = 12
"""Cases at the beginning that are not counted: libraries load their kernels."""


def _cases(device: DeviceKind) -> Iterator[tuple[Any, Any, Callable[..., Any]]]:
    """(problem, rival, candidate) without an end; no candidate twice."""
    from perfsuite.problems import Gemm

    modules = [task_of(str(HERE / "problems" / f"{name}.py"), device=device).workloads[0] for name in MODULES]
    dtype, round_ = "float16" if device == "cuda" else "float32", 0
    while True:
        for one in modules:
            yield one.problem, one.against, (lambda *args, model=one.against: model(*args))
        for size in SIZES:
            problem = Gemm(size, size + 32 * (round_ % 4), size, dtype=dtype)
            yield problem, problem.default_rival, (lambda a, b: a @ b)
        round_ += 1


MODULES = ("softmax", "gelu", "logsumexp", "rms", "distance", "norm", "prefix")


class Progress:
    """Prints a line now and then."""

    EVERY = 5.0

    def __init__(self, name: str, count: int) -> None:
        self._name, self._count, self._begin, self._last = name, count, time.monotonic(), time.monotonic()

    def at(self, number: int) -> None:
        """Say how many have ended."""
        now = time.monotonic()
        if now - self._last >= self.EVERY or number == self._count:
            self._last = now
            pace = 3600.0 * number / max(now - self._begin, 1e-9)
            print(f"{self._name}: {number} of at most {self._count}, {pace:.0f} an hour", flush=True)


def judged(name: str, pool: Pool, jobs: Sequence[Job], terms: Terms, seconds: float) -> Fed:
    """Judge jobs on a pool until the time is over, with progress."""
    shown, count = Progress(name, len(jobs)), 0

    def told(_: Ended) -> None:
        nonlocal count
        count += 1
        shown.at(count)

    fed = Fed(jobs, terms, seconds=seconds, told=told)
    pool.work(fed)
    return fed


def isolated(
    device: DeviceKind, cards: Sequence[str], jobs: int, seconds: float, most: int, beside: int = 1
) -> dict[str, Any]:
    """Judge source text again and again on a pool whose caches have all of it. jobs: processes without cards."""
    terms = Terms(device=device, at_least=AT_LEAST)
    places = sorted(HERE.glob("candidates/right/*.py"))[::3]
    drawn = [of_file(one.stem, "plain", one) for one in places]
    if device == "cuda":
        texts = [*triton_texts(SHARED_TEXTS, SHARED_SEED), *cuda_texts(SHARED_TEXTS, SHARED_SEED)]
        drawn += [of_text(one.name, one) for one in texts]
    made = [Job.of(one.candidate, problem_value(one.problem), id=one.id) for one in drawn]
    with Pool(terms, jobs=jobs, cards=cards, beside=beside, most_seconds=JOB_SECONDS) as pool:
        warm = Fed(made, replace(terms, timed=False), seconds=START_SECONDS, each=True)
        pool.work(warm)
        pool.work(Fed(made[:1], terms, seconds=START_SECONDS, each=True))  # what times has started too
        print(f"isolated: caches filled with {len(made)} texts in {warm.seconds:.1f} s", flush=True)
        again = [made[number % len(made)] for number in range(most)]
        fed = judged("isolated", pool, again, terms, seconds)
        processes = len(pool.state)
    return {**of_fed(fed), "processes": processes, "texts": len(made)}


def cold(device: DeviceKind, cards: Sequence[str], kind: str, seconds: float, most: int) -> dict[str, Any]:
    """Judge texts that no cache knows."""
    seed = int.from_bytes(os.urandom(4), "little")
    texts = (triton_texts if kind == "triton" else cuda_texts)(most, seed)
    first = (triton_texts if kind == "triton" else cuda_texts)(7, seed + 1)
    terms = Terms(device=device)
    drawn = [of_text(one.name, one) for one in (*first, *texts)]
    made = [Job.of(one.candidate, problem_value(one.problem), id=one.id) for one in drawn]
    with Pool(terms, cards=cards, most_seconds=JOB_SECONDS) as pool:
        pool.work(Fed(made[:1], terms, seconds=START_SECONDS, each=True))  # the processes start
        fed = judged(kind, pool, made[len(first) :], terms, seconds)
    return {**of_fed(fed), "processes": len(cards), "seed": seed}


def of_fed(fed: Fed) -> dict[str, Any]:
    """What was measured: an object for the record."""
    stages: dict[str, list[float]] = {}
    for one in fed.ended:
        stages.setdefault("asked", []).append(one.ended - one.began)
        for stage, value in one.answer["seconds"].items():
            stages.setdefault(stage, []).append(value)
    wrong = [one for one in fed.ended if one.answer["verdict"] in ("WRONG", "UNDECIDED")]
    return {
        "jobs": len(fed.ended),
        "seconds": fed.seconds,
        "per_hour": 3600.0 * len(fed.ended) / fed.seconds if fed.ended else 0.0,
        "stages": {stage: spread(values) for stage, values in stages.items()},
        "verdicts": dict(Counter(f"{one.answer['verdict']} {one.answer['reason']}" for one in fed.ended)),
        "deaths": sum(one.deaths for one in fed.ended),
        "isolation": sorted({str(one["isolation"]) for ended in fed.ended for one in ended.answer["workloads"]}),
        "unexpected": [f"{one.job.id}: {one.answer['sentence']}"[:300] for one in wrong][:10],
    }


def main(words: Sequence[str] | None = None) -> int:
    """Measure, and write each part when it ends."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, metavar="S", help="of each part (default: 60)")
    parser.add_argument("--most", type=int, default=2000, metavar="N", help="cases of each part (default: 2000)")
    parser.add_argument("--cold", type=int, default=100, metavar="N", help="texts of triton and of cuda (default: 100)")
    parser.add_argument("--parts", default=",".join(PARTS), help=f"(default: {','.join(PARTS)})")
    parser.add_argument("--beside", type=int, default=1, metavar="N", help="processes on each card (default: 1)")
    parser.add_argument("--output", type=Path, metavar="FILE", help="the record; what else it holds stays there")
    given = parser.parse_args(words)
    parts = given.parts.split(",")
    if unknown := set(parts) - {*PARTS}:
        parser.error(f"--parts has {', '.join(sorted(unknown))}; allowed are {', '.join(PARTS)}")
    cards = [card.selector for card in usable_devices(os.environ).cards]
    device: DeviceKind = "cuda" if cards else "cpu"
    limits = given.seconds, given.most
    work: dict[str, Callable[[], dict[str, Any]]] = {
        "in-process": lambda: in_process(device, *limits),
        "isolated": lambda: isolated(device, cards[:1], 1, *limits, given.beside),
        "cards": lambda: isolated(device, cards, 2, *limits, given.beside),
        "triton": lambda: cold(device, cards, "triton", given.seconds, given.cold),
        "cuda": lambda: cold(device, cards, "cuda", given.seconds, given.cold),
    }
    told: dict[str, Any] = {}
    for part in parts:
        if not cards and part in ("triton", "cuda"):
            print(f"{part}: left out, there is no card", flush=True)
            continue
        if part == "cards" and len(cards) == 1:
            print("cards: left out, there is one card", flush=True)
            continue
        told[part] = {**work[part](), "goal": GOALS[part]}
        if part == "cards" and "isolated" in told:
            told[part]["ratio"] = told[part]["per_hour"] / max(told["isolated"]["per_hour"], 1e-9)
        kept_in(given.output, part, told[part], device)
        print(json.dumps({part: told[part]}, indent=1), flush=True)
    return 0
