"""`perfsuite.judge`: one candidate, in this process."""

from __future__ import annotations

import os
from typing import Any

from perfsuite.device.cards import usable_devices
from perfsuite.judge.answer import Answer
from perfsuite.judge.candidates import candidate_of
from perfsuite.judge.engine import Terms, judge_one
from perfsuite.judge.problem_forms import task_of
from perfsuite.judge.sanitize import check_tool
from perfsuite.outcome import UserError


def judge(candidate: Any, problem: Any, *, id: str | None = None, **terms: Any) -> Answer:
    """Judge source text on a problem. The text runs in a process of its own, in a sandbox if the machine has one.

    candidate: a path (.py, .cpp, .cu, .json), Python source with a line break, or an object with files.
    problem: a path (.py with Model and get_inputs, .json), a JSON value such as {"family": "gemm", ...}, or a Problem.
    id: the job's identifier in the answer; by default a hash.
    terms: fields of `perfsuite.judge.engine.Terms`, such as at_least, seconds, device, run_seconds and timed. Without
    `device`, the candidate runs on a GPU if the machine has one.
    UserError for bad input, and for a form that is not supported.
    """
    if "device" not in terms:
        terms["device"] = "cuda" if usable_devices(os.environ).cards else "cpu"
    try:
        agreed = Terms(**terms)
        agreed.settings(1)
        if agreed.sanitize:
            check_tool(agreed.device)
    except (TypeError, ValueError) as error:
        raise UserError(str(error).replace("Terms.__init__() got an", "judge() got an")) from None
    return judge_one(candidate_of(candidate), task_of(problem, device=agreed.device), agreed, id=id)
