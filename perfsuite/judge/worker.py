"""A process of a pool: reads one job a line, writes one answer a line. `perfsuite.judge.pool` starts it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
from typing import Any

from perfsuite.device import turns
from perfsuite.device.cards import find_devices
from perfsuite.device.locks import claim, lock_path
from perfsuite.isolate import ahead, nursery
from perfsuite.judge.candidates import candidate_of
from perfsuite.judge.engine import Terms, judge_one
from perfsuite.judge.jobs import Job, undecided
from perfsuite.judge.problem_forms import task_of
from perfsuite.judge.tasks import Task
from perfsuite.outcome import Reason, UserError, one_line
from perfsuite.workers.child import BESIDE, serve

MOST_TASKS = 64
"""Problems that a process keeps; their tensors stay in its memory. The one that was made first goes first."""
OF_OTHERS = (Reason.OUT_OF_MEMORY, Reason.NOT_STARTED, Reason.SERVICE_FAILED, Reason.SHARED_DEVICE, Reason.RIVAL_FAILED)
SHORT_OF_MEMORY = "out of memory|alloc_failed|not_initialized|allocate memory"
"""Words of torch, cuBLAS, Triton and the driver."""
MOST_KEPT = 0.5
"""Share of the card's memory that torch's allocators of all processes may keep for the next jobs."""
SPARES = 2
"""Processes that wait for the next candidates of a card; one, where others use the card as well. Each has a context
there, of about half a gigabyte."""
_tasks: dict[str, Task] = {}


def answer_to(request: dict[str, Any]) -> dict[str, Any]:
    """The answer to one request. A form that is not supported, and a fault of the judge, are UNDECIDED.

    What others on the card may have caused counts only if it is so without them too.
    """
    job, terms = Job(**request["job"]), Terms(**request["terms"])
    found, mine = _answer(job, terms), turns.shared()
    if mine is not None and _others() and terms.device == "cuda" and _perhaps_of_others(found):
        with turns.working():
            mine.alone(stay=True)
            found = _answer(job, terms)
    if terms.device == "cuda":
        _keep_little()
    return found


def _answer(job: Job, terms: Terms) -> dict[str, Any]:
    try:
        key = json.dumps(job.problem, sort_keys=True)
        if key not in _tasks:
            if len(_tasks) >= MOST_TASKS:
                del _tasks[next(iter(_tasks))]
            with turns.working() if terms.device == "cuda" else contextlib.nullcontext():
                _tasks[key] = task_of(job.problem, device=terms.device)
        if terms.device == "cuda":
            ahead.keep(1 if _others() else SPARES, trusted=False, device="cuda")
        return judge_one(candidate_of(dict(job.candidate)), _tasks[key], terms, id=job.id).as_json()
    except UserError as error:
        return undecided(job, Reason.UNSUPPORTED, one_line(str(error)), terms)
    except Exception as error:
        return undecided(job, Reason.SERVICE_FAILED, one_line(f"{type(error).__name__}: {error}"), terms)


def _others() -> bool:
    """True if other processes use the card as well."""
    mine = turns.shared()
    return mine is not None and mine.processes > 1


def _perhaps_of_others(answer: dict[str, Any]) -> bool:
    """True if other processes on the card, or the memory that they have, may be the reason of this answer."""
    short = answer["verdict"] != "MET" and re.search(SHORT_OF_MEMORY, str(answer["sentence"]), re.IGNORECASE)
    return answer["reason"] in OF_OTHERS or bool(short)


def _keep_little() -> None:
    """Give the card back what torch keeps for later, where it is more than this process's share."""
    import torch

    if torch.cuda.is_initialized() and _others():
        total = torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory
        if torch.cuda.memory_reserved() > MOST_KEPT * turns.memory_share() * total:
            with turns.working():
                torch.cuda.empty_cache()


def main() -> None:
    """Answer until the input ends. The words of the command line are the processors to stay on."""
    if cores := [int(word) for word in sys.argv[1:]]:
        os.sched_setaffinity(0, cores)
    cards = find_devices(os.environ).cards
    if cards:  # alone on its card, it takes turns with the processes that it starts
        claim(path := lock_path(cards[0].uuid, "turns"))
        turns.share(path, int(os.environ.get(BESIDE, "1")), nursery.contexts)
    requests, answer = serve()
    if cards:
        nursery.prepare(10 * cards[0].capability[0] + cards[0].capability[1])
        import torch  # noqa: F401  (at the same time as those processes do)
    for line in requests:
        answer(json.dumps(answer_to(json.loads(line))))


if __name__ == "__main__":
    main()
