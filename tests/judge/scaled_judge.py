"""The judge on one card and on more: verdicts an hour, seconds of each stage, the host's processors, a card taken away.

The processes start once, and fill their caches. A part then uses those of some cards. Each card has its share of the
host's processors, as on a machine with one card, also where the other cards have nothing to do.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from drawn import Drawn, drawn, problem_value
from fed import Ended, Fed
from host_watch import Cards, Processors
from measured import spread

from perfsuite.device.cards import Device
from perfsuite.judge.engine import Terms
from perfsuite.judge.jobs import Job
from perfsuite.judge.pool import Pool, _cores, _local
from perfsuite.settings import DeviceKind
from perfsuite.workers.child import Child

GOAL = 0.9
"""Share of linear on eight cards."""
AT_LEAST = 0.05
"""The target of timed jobs: low, so that verdicts are the same on every machine."""
MIXTURE = 60
"""Different jobs, six of them faults, one of each kind. A run repeats them, so that all parts have the same mixture."""
FEW_TEXTS = 4
"""Different texts in Triton, and in CUDA: a process keeps what a text's compiler left, and compiles each text once."""
JOB_SECONDS = 60.0


def language(one: Drawn) -> str:
    """ "triton" or "cuda" of a text that was made for the run; else the folder of the candidate."""
    return one.id.split("-")[1]


def few_texts(mixture: Sequence[Drawn]) -> list[Drawn]:
    """The same jobs with FEW_TEXTS different texts of each language, in turn."""
    seen: dict[str, list[Drawn]] = {"triton": [], "cuda": []}
    found = []
    for one in mixture:
        if (texts := seen.get(language(one))) is not None:
            texts.append(one if len(texts) < FEW_TEXTS else replace(texts[len(texts) % FEW_TEXTS], id=one.id))
            one = texts[-1]
        found.append(one)
    return found


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What is to be measured."""

    jobs: int
    """Of each part."""
    seconds: float
    """Of each part: no job begins later."""
    warm_seconds: float
    counts: Sequence[int]
    """Numbers of cards."""
    beside: int
    """Processes on each card."""
    timed: bool = True
    together: bool = False
    """True: parts on different cards run at the same time, where there are enough cards for it."""


class Node:
    """The cards of this machine, or processors in their place, with the processes that judge there."""

    def __init__(self, asked: Asked, cards: Sequence[Device], places: int, device: DeviceKind) -> None:
        """places: the number of cards, or of processes on processors. Use it in a `with`: the processes then end."""
        self.asked, self.cards, self.places, self.device = asked, cards, places, device
        self._terms = Terms(device=device, at_least=AT_LEAST, timed=asked.timed)
        self._children = list(_local(places, [card.selector for card in cards], asked.beside))
        self._cores = _cores(places)
        mixture = few_texts(drawn(min(MIXTURE, asked.jobs), device=device))
        self._known = {
            f"{number:05}-{one.id}": one
            for number, one in ((number, mixture[number % len(mixture)]) for number in range(asked.jobs))
        }
        self._jobs = [Job.of(one.candidate, problem_value(one.problem), id=id) for id, one in self._known.items()]
        self._mixture = len(mixture)

    def __enter__(self) -> Node:
        return self

    def __exit__(self, *_: object) -> None:
        for child in self._children:
            child.close()

    def warm(self) -> dict[str, Any]:
        """Start all processes, and fill the caches: of compilers by every job, of processes by a job of each problem.

        These answers do not count in any part.
        """
        begin = time.monotonic()
        every = self._fed(self._jobs[: self._mixture], self.asked.warm_seconds)
        Pool(self._terms, children=self._children, most_seconds=JOB_SECONDS).work(every)
        first = {self._cached(self._known[job.id]): job for job in reversed(self._jobs[: self._mixture])}
        first.pop("", None)
        left = self.asked.warm_seconds - (time.monotonic() - begin)
        each = self._fed(list(first.values()), left, each=True)
        Pool(self._terms, children=self._children, most_seconds=JOB_SECONDS).work(each)
        return {"seconds": time.monotonic() - begin, "jobs": len(every.ended), "jobs_of_each_process": len(first)}

    @staticmethod
    def _cached(one: Drawn) -> str:
        """What a process keeps of this job for others like it: its problem, or all of a text; nothing of a fault."""
        if one.kind != "plain" or one.expected[0] != "MET":
            return ""
        return json.dumps(one.candidate) if language(one) == "triton" else one.problem

    def parts(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """(name, figures) of each part, in the order in which they end."""
        for group in self.groups():
            yield from self._at_once(group)
        if self.places > 1:
            yield "removed", self.removed()

    def groups(self) -> list[dict[int, list[int]]]:
        """Parts that run at the same time, each with its cards: number of cards -> which."""
        made: list[dict[int, list[int]]] = []
        for count in sorted(self.asked.counts, reverse=True):
            last = made[-1] if made else {}
            used = sum(last)
            if self.asked.together and last and used + count <= self.places:
                last[count] = list(range(used, used + count))
            else:
                made.append({count: list(range(count))})
        return made

    def _at_once(self, group: dict[int, list[int]]) -> Iterator[tuple[str, dict[str, Any]]]:
        feds = {count: self._fed(self._jobs, self.asked.seconds) for count in group}
        busy: dict[int, float | None] = {}

        def work(count: int, places: Sequence[int]) -> None:
            processors = Processors([core for place in places for core in self._cores[place]])
            self._work(self._of(places), feds[count])
            busy[count] = processors.busy()

        threads = [threading.Thread(target=work, args=one) for one in group.items()]
        spent = time.process_time()
        with Cards(self.cards) as watched:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        spent = time.process_time() - spent
        answers = max(1, sum(len(fed.ended) for fed in feds.values()))
        for count, places in group.items():
            told = self._found(feds[count], len(self._of(places)), busy[count], places)
            seen = watched.busy()
            told["card_busy"] = [seen[card.selector] for card in self._cards(places) if card.selector in seen]
            told["parent_seconds_a_job"] = spent / answers
            told["at_the_same_time"] = sorted(set(group) - {count})
            yield f"cards-{count}", {**told, "goal": GOAL}

    def removed(self) -> dict[str, Any]:
        """The figures on all cards. When half of the jobs or of the time is over, the last card loses its processes."""
        places, last = range(self.places), self._of([self.places - 1])
        half = threading.Event()
        count = 0

        def told(_: Ended) -> None:
            nonlocal count
            count += 1
            if count >= self.asked.jobs // 2:
                half.set()

        def take_away() -> None:
            half.wait(self.asked.seconds / 2)
            for child in last:
                child.prepare = lambda: False  # type: ignore[method-assign]
            for child in last:
                with contextlib.suppress(OSError):
                    child.end()

        fed = self._fed(self._jobs, self.asked.seconds, told)
        processors = Processors([core for cores in self._cores for core in cores])
        thread = threading.Thread(target=take_away)
        thread.start()
        self._work(self._children, fed)
        half.set()
        thread.join()
        self._work(self._children, fed)  # what the last card had at the very end
        answers = self._found(fed, len(self._children), processors.busy(), places)
        return {**answers, "taken_away": 1}

    def _of(self, places: Sequence[int]) -> list[Child]:
        return [child for number, child in enumerate(self._children) if number % self.places in places]

    def _cards(self, places: Sequence[int]) -> list[Device]:
        return [self.cards[place] for place in places] if self.cards else []

    def _fed(
        self, jobs: Sequence[Job], seconds: float, told: Callable[[Ended], None] = lambda _: None, each: bool = False
    ) -> Fed:
        def terms_of(job: Job) -> Terms:
            return replace(self._terms, run_seconds=self._known[job.id].terms["run_seconds"])

        return Fed(jobs, self._terms, seconds=seconds, told=told, each=each, terms_of=terms_of)

    def _work(self, children: Sequence[Child], fed: Fed) -> None:
        pool = Pool(self._terms, children=children, most_seconds=JOB_SECONDS)
        pool.work(fed)
        for _ in range(3):  # a process may have died when the others had ended
            if fed.waiting:
                pool.work(fed)

    def _found(self, fed: Fed, processes: int, busy: float | None, places: Sequence[int]) -> dict[str, Any]:
        """What became of the jobs that were taken."""
        stages: dict[str, list[float]] = {}
        for one in fed.ended:
            stages.setdefault("asked", []).append(one.ended - one.began)
            for stage, value in one.answer["seconds"].items():
                stages.setdefault(stage, []).append(value)
        answers = Counter(one.answer["id"] for one in fed.ended)
        twice = [f"{id} has {count} verdicts" for id, count in sorted(answers.items()) if count > 1]
        none = [f"{fed.taken - len(answers)} jobs that were taken have no verdict"] * (fed.taken > len(answers))
        faults = [self._known[one.job.id].fault(dict(one.answer)) for one in fed.ended]
        steady, seconds = fed.steady(processes)
        hourly = 3600.0 * steady / seconds if seconds else 0.0
        own = sum(len(self._cores[place]) for place in places) or len(os.sched_getaffinity(0))
        return {
            "cards": len(places),
            "processes": processes,
            "jobs": len(fed.ended),
            "not_begun": len(self._jobs) - fed.taken,
            "seconds": fed.seconds,
            "steady": {"jobs": steady, "seconds": seconds},
            "jobs_per_hour": hourly,
            "stages": {stage: spread(values) for stage, values in stages.items()},
            "verdicts": dict(Counter(f"{one.answer['verdict']} {one.answer['reason']}" for one in fed.ended)),
            "deaths": sum(one.deaths for one in fed.ended),
            "faults": [*twice, *none, *filter(None, faults)],
            "host_busy": busy,
            "host_processors": own,
            "processor_seconds_a_job": None if busy is None else busy * own * fed.seconds / max(1, len(fed.ended)),
        }
