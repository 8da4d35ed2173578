"""What became of many jobs, and the record of it, however they were judged."""

from __future__ import annotations

import json
import math
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from drawn import HERE, Drawn

from perfsuite.record.atomic_write import write_whole
from perfsuite.settings import DeviceKind


class Flow:
    """Jobs that are sent in order, not all at once where a time may end them."""

    AHEAD, MOST_AT_ONCE = 32, 1000
    """Jobs that are sent and have not ended, with a time and without one."""

    def __init__(self, jobs: Sequence[Drawn], seconds: float = math.inf) -> None:
        """seconds: no job is sent later than this."""
        self._jobs, self._ahead = list(jobs), self.AHEAD if seconds < math.inf else self.MOST_AT_ONCE
        self._begin, self._seconds = time.monotonic(), seconds
        self.sent: list[Drawn] = []

    def share(self, ended: int) -> float:
        """The part of the jobs, or of the time, that is over when so many jobs have ended."""
        return max(ended / max(1, len(self._jobs)), (time.monotonic() - self._begin) / self._seconds)

    def next(self, ended: int) -> list[Drawn]:
        """The jobs to send now that so many have ended; from now on they count as sent."""
        over = time.monotonic() - self._begin > self._seconds
        new = [] if over else self._jobs[len(self.sent) : max(ended + self._ahead, len(self.sent))]
        self.sent += new
        return new


@dataclass
class Outcome:
    """What became of the jobs."""

    sent: list[Drawn] = field(default_factory=list)
    """All jobs that were sent."""
    ended: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Identifier -> the job's fields, as they were first seen at its end."""
    later: list[str] = field(default_factory=list)
    """Identifiers of jobs that ended twice, or were different when they were asked for again."""
    killed: int = 0
    """Processes that were killed."""
    restarts: int = 0
    """Starts of the service after it was ended."""
    _told: set[str] = field(default_factory=set)

    def tell(self, jobs: Sequence[Drawn]) -> None:
        """Print how far it is, and each new answer that is not the expected one."""
        for job in jobs:
            if job.id in self.ended and job.id not in self._told:
                self._told.add(job.id)
                if fault := job.fault(self.ended[job.id]["answer"]):
                    print(fault, file=sys.stderr, flush=True)
        killed = f"{self.killed} processes killed, {self.restarts} restarts"
        print(f"{len(self.ended)} of {len(jobs)} jobs ended; {killed}", file=sys.stderr, flush=True)

    @property
    def deaths(self) -> int:
        """Deaths of a process that had a job."""
        return sum(one["deaths"] for one in self.ended.values())

    def faults(self, jobs: Sequence[Drawn]) -> list[str]:
        """One sentence for each job without exactly one right verdict."""
        lost = [f"{job.id} has no verdict" for job in jobs if job.id not in self.ended]
        found = (job.fault(self.ended[job.id]["answer"]) for job in jobs if job.id in self.ended)
        return [*lost, *(f"{id} changed after its end" for id in self.later), *filter(None, found)]


def spread(values: Iterable[float]) -> dict[str, float]:
    """The median, the 95th of a hundred, and the largest."""
    ordered = sorted(values)
    cut = ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]
    return {"median": statistics.median(ordered), "p95": cut, "most": ordered[-1], "jobs": len(ordered)}


def measured(jobs: Sequence[Drawn], found: Outcome, workers: int, *, whole: bool = True) -> dict[str, Any]:
    """The record of a run. whole: it has ended; else jobs without a verdict are no fault."""
    ended = list(found.ended.values())
    seconds = max(one["ended"] for one in ended) - min(one["made"] for one in ended)
    stages: dict[str, list[float]] = {}
    for one in ended:
        for stage, value in one["answer"]["seconds"].items():
            stages.setdefault(stage, []).append(value)
        stages.setdefault("wait", []).append(one["began"] - one["made"])
    workloads = [workload for one in ended for workload in one["answer"]["workloads"]]
    return {
        "whole": whole,
        "jobs": len(jobs),
        "answered": len(ended),
        "kinds": dict(Counter(job.kind for job in jobs)),
        "workers": workers,
        "seconds": seconds,
        "jobs_per_hour": 3600.0 * len(ended) / seconds,
        "stages": {stage: spread(values) for stage, values in stages.items()},
        "workers_killed": found.killed,
        "service_restarts": found.restarts,
        "deaths": found.deaths,
        "isolation": sorted({str(one["isolation"]) for one in workloads if one["isolation"]}),
        "faults": found.faults([job for job in jobs if whole or job.id in found.ended]),
    }


class Meanwhile:
    """Keeps in a record what is known of a run that goes on, now and then: a run that is cut leaves its figures."""

    EVERY = 10.0

    def __init__(self, path: Path | None, name: str, workers: int, device: DeviceKind) -> None:
        """path, name, device: as in `kept_in`."""
        self._place, self._workers, self._device = (path, name), workers, device
        self._last = time.monotonic()

    def at(self, found: Outcome) -> None:
        """Say how far it is."""
        if found.ended and time.monotonic() - self._last >= self.EVERY:
            self._last = time.monotonic()
            kept_in(*self._place, measured(found.sent, found, self._workers, whole=False), self._device)


def kept_in(path: Path | None, name: str, values: Mapping[str, Any], device: DeviceKind) -> None:
    """Make values, and the environment, the object `name` of a record; what else it holds stays there.

    path: None keeps nothing.
    """
    from perfsuite.record.fingerprint import environment

    if path is None:
        return
    kept = json.loads(path.read_text()) if path.exists() else {}
    own = {**values, "environment": asdict(environment(HERE.parents[1], device=device))}
    write_whole(path, json.dumps({**kept, name: own}, indent=1) + "\n")
