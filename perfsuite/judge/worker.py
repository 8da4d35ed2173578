"""A process of a pool: reads one job a line, writes one answer a line. `perfsuite.judge.pool` starts it."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from perfsuite.isolate import ahead
from perfsuite.judge.candidates import candidate_of
from perfsuite.judge.engine import Terms, judge_one
from perfsuite.judge.jobs import Job, undecided
from perfsuite.judge.problem_forms import task_of
from perfsuite.judge.tasks import Task
from perfsuite.outcome import Reason, UserError, one_line
from perfsuite.workers.child import serve

MOST_TASKS = 64
"""Problems that a process keeps; their tensors stay in its memory. The one that was made first goes first."""
SPARES = 2
"""Processes that wait for the next candidates of a card. Each has a context there, of about half a gigabyte."""
_tasks: dict[str, Task] = {}


def answer_to(request: dict[str, Any]) -> dict[str, Any]:
    """The answer to one request. A form that is not supported, and a fault of the judge, are UNDECIDED."""
    job, terms = Job(**request["job"]), Terms(**request["terms"])
    try:
        key = json.dumps(job.problem, sort_keys=True)
        if key not in _tasks:
            if len(_tasks) >= MOST_TASKS:
                del _tasks[next(iter(_tasks))]
            _tasks[key] = task_of(job.problem, device=terms.device)
        if terms.device == "cuda":
            ahead.keep(SPARES, trusted=False, device="cuda")
        return judge_one(candidate_of(dict(job.candidate)), _tasks[key], terms, id=job.id).as_json()
    except UserError as error:
        return undecided(job, Reason.UNSUPPORTED, one_line(str(error)), terms)
    except Exception as error:
        return undecided(job, Reason.SERVICE_FAILED, one_line(f"{type(error).__name__}: {error}"), terms)


def main() -> None:
    """Answer until the input ends. The words of the command line are the processors to stay on."""
    if cores := [int(word) for word in sys.argv[1:]]:
        os.sched_setaffinity(0, cores)
    requests, answer = serve()
    for line in requests:
        answer(json.dumps(answer_to(json.loads(line))))


if __name__ == "__main__":
    main()
