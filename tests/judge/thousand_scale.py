"""Jobs, faults among them, on one card and on more: verdicts an hour, share of linear, stages, the host's processors.

    python -m tests.judge.thousand --scale --jobs 400 --seconds 90 --output records/h200/scale.json

A first pass on all cards fills the caches of compilers and is not counted. Then the same jobs run on 1, 2, 4 and all
cards. `removed`: on all cards, one of which is taken away in the middle. Each part is written when it ends. Of
identical code gated on all cards at once, `perfsuite calibrate --jobs N` writes a record; --identical N=FILE adds it.
"""

from __future__ import annotations

import argparse
import json
import os
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from drawn import Drawn, drawn, problem_value
from fed import Ended, Fed
from measured import kept_in, spread

from perfsuite.device.cards import usable_devices
from perfsuite.judge.engine import Terms
from perfsuite.judge.jobs import Job
from perfsuite.judge.pool import Pool, _local
from perfsuite.settings import DeviceKind

GOAL = 0.9
"""Share of linear on eight cards."""
JOB_SECONDS = 60.0


class Processors:
    """The share of the host's processors that were busy since this object was made."""

    def __init__(self) -> None:
        self._before = self._read()

    @staticmethod
    def _read() -> tuple[int, int]:
        """(all ticks, idle ones) of all processors."""
        ticks = [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
        return sum(ticks), ticks[3] + ticks[4]

    def busy(self) -> float:
        """Between 0 and 1."""
        (all_before, idle_before), (all_now, idle_now) = self._before, self._read()
        return 1.0 - (idle_now - idle_before) / max(1, all_now - all_before)


def on_cards(
    jobs: Sequence[Drawn], terms: Terms, cards: Sequence[str], processes: int, seconds: float, remove_after: int | None
) -> dict[str, Any]:
    """Judge the jobs, one process a card. remove_after: answers behind which the last process is taken away."""
    made = {one.id: Job.of(one.candidate, problem_value(one.problem), id=one.id) for one in jobs}
    own = {one.id: replace(terms, **one.terms) for one in jobs}
    children = list(_local(processes, cards))
    gone, count = threading.Event(), 0
    children[-1].prepare = lambda: not gone.is_set()  # type: ignore[method-assign]

    def told(_: Ended) -> None:
        nonlocal count
        count += 1
        if count == remove_after:
            gone.set()
            threading.Thread(target=children[-1].end, daemon=True).start()

    fed = Fed(list(made.values()), terms, seconds=seconds, told=told, terms_of=lambda job: own[job.id])
    with Pool(terms, children=children, most_seconds=JOB_SECONDS) as pool:
        processors = Processors()
        pool.work(fed)
        busy = processors.busy()
    return {**found(jobs, fed), "processes": len(children), "host_busy": busy, "host_processors": os.cpu_count()}


def found(jobs: Sequence[Drawn], fed: Fed) -> dict[str, Any]:
    """What became of the jobs that were taken."""
    known = {one.id: one for one in jobs}
    stages: dict[str, list[float]] = {}
    for one in fed.ended:
        for stage, value in one.answer["seconds"].items():
            stages.setdefault(stage, []).append(value)
    answers = [one.answer["id"] for one in fed.ended]
    twice = sorted({f"{id} has {answers.count(id)} verdicts" for id in answers if answers.count(id) > 1})
    wrong = [said for one in fed.ended if (said := known[one.job.id].fault(dict(one.answer))) is not None]
    return {
        "jobs": len(fed.ended),
        "not_begun": len(jobs) - len(set(answers)),
        "seconds": fed.seconds,
        "jobs_per_hour": 3600.0 * len(fed.ended) / fed.seconds if fed.seconds else 0.0,
        "stages": {stage: spread(values) for stage, values in stages.items()},
        "deaths": sum(one.deaths for one in fed.ended),
        "faults": [*twice, *wrong],
    }


def identical(word: str) -> tuple[str, dict[str, Any]]:
    """(name, figures) of N=FILE, a record of `perfsuite calibrate` on N cards at once."""
    count, _, file = word.partition("=")
    told = json.loads(Path(file).read_text())["aa"]
    return f"identical-{int(count)}", {"cards": int(count), "gates": told["gates"], "aa": told}


def main(words: Sequence[str] | None = None) -> int:
    """Measure, and write each part when it ends."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=400, metavar="N", help="of each part (default: 400)")
    parser.add_argument("--seconds", type=float, default=90.0, metavar="S", help="of each part, at most (default: 90)")
    parser.add_argument("--counts", metavar="N,N", help="numbers of cards (default: 1,2,4 and all that there are)")
    parser.add_argument("--identical", action="append", default=[], metavar="N=FILE", help="records to add")
    parser.add_argument("--output", type=Path, metavar="FILE", help="the record; what else it holds stays there")
    given = parser.parse_args(words)
    cards = [card.selector for card in usable_devices(os.environ).cards]
    device: DeviceKind = "cuda" if cards else "cpu"
    most = len(cards) or os.cpu_count() or 1
    counts = [int(one) for one in given.counts.split(",")] if given.counts else sorted({1, 2, 4, most})
    if not all(1 <= one <= most for one in counts) and given.counts:
        parser.error(f"--counts is {given.counts}; there are {most}")
    counts = [one for one in counts if one <= most]
    jobs, terms = drawn(given.jobs, device=device), Terms(device=device, timed=False)
    begin = time.monotonic()

    def part(count: int, remove_after: int | None = None) -> dict[str, Any]:
        return on_cards(jobs, terms, cards[:count], count, given.seconds, remove_after)

    def tell(name: str, values: Mapping[str, Any]) -> None:
        print(f"{time.monotonic() - begin:.0f} s: {json.dumps({name: values})}", flush=True)
        kept_in(given.output, name, values, device)

    for word in given.identical:
        tell(*identical(word))
    if not given.jobs:
        return 0
    part(most)
    one: float | None = None
    for count in counts:
        values = part(count)
        one = values["jobs_per_hour"] if count == 1 else one
        share = None if not one else values["jobs_per_hour"] / count / one
        tell(f"cards-{count}", {**values, "share_of_linear": share, "goal": GOAL})
    if most > 1:
        tell("removed", part(most, given.jobs // 2))
    return 0
