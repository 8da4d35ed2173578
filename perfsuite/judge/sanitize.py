"""Runs candidates under the tools of NVIDIA's compute-sanitizer, one process a tool, and reads each first finding.

Source of the tools, the options and the forms of their output: NVIDIA, Compute Sanitizer User Manual.
"""

from __future__ import annotations

import pickle
import re
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from perfsuite.judge.alone import Alone, Ran
from perfsuite.judge.answer import Sanitized, Stage, WorkloadAnswer
from perfsuite.outcome import Reason, UserError, Verdict, one_line
from perfsuite.problems.base import Inputs
from perfsuite.settings import DeviceKind

PROGRAM = "compute-sanitizer"
TOOLS = ("memcheck", "racecheck", "synccheck", "initcheck")
FOUND = 86
"""The exit code that the tools are asked for if they find an error."""
_OPTIONS = {"racecheck": ("--racecheck-report", "analysis")}
_VARIABLES = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
"""Each tensor is then an allocation of its own, so that an access one element past its end is seen."""
_LINE = re.compile(r"^=========(?: (.*))?$")
_NO_FINDING = re.compile(
    r"COMPUTE-SANITIZER|\w+ SUMMARY:|Target application|Program hit|Warning:|Internal Sanitizer|This tool|$"
    r"|Error: (?:Target application|No attachable)"
)
_PLACE = re.compile(r"\b(?:at|by|in) .*|and (?:Read|Write|Atomic) access .*|.* is out of bounds")
MOST_LINES = 4
"""Lines of a finding that the answer keeps: the error, the place and the access."""


def check_tool(device: DeviceKind) -> None:
    """UserError unless the candidate runs on a card and the program is installed."""
    if device != "cuda":
        raise UserError(
            "--sanitize needs a GPU: the tools of compute-sanitizer watch CUDA kernels; on processors leave it out, or "
            "build the candidate with -fsanitize=address by hand"
        )
    if shutil.which(PROGRAM) is None:
        raise UserError(f"--sanitize needs {PROGRAM}, which is not on PATH; it comes with the CUDA toolkit")


def command(tool: str) -> list[str]:
    """The command line of a tool, before that of the program."""
    line = [PROGRAM, "--tool", tool, "--error-exitcode", str(FOUND), "--print-limit", "1"]
    return [*line, "--report-api-errors", "no", "--target-processes", "all", *_OPTIONS.get(tool, ())]


def sanitized(
    function: Callable[..., Any], inputs: Inputs, device: str, *, seconds: float, tools: Sequence[str] = TOOLS
) -> tuple[Sanitized, ...]:
    """One result a tool. seconds: the longest time of each."""
    found = []
    with Alone(function, [inputs], device) as alone:
        for tool in tools:
            begin = time.perf_counter()
            ran = alone.run("call", under=command(tool), seconds=seconds, variables=_VARIABLES)
            spent = time.perf_counter() - begin
            found.append(_result(tool, ran, spent, limit=seconds))
    return tuple(found)


def with_sanitizer(
    answer: WorkloadAnswer, source: Any, inputs: Inputs, rival: Any, *, device: str, seconds: float
) -> WorkloadAnswer:
    """The answer, and what the tools say. A finding is WRONG unless the rival has one too by the same tool.

    A tool that did not end leaves a candidate UNDECIDED that was not WRONG before.
    """
    found = sanitized(source, inputs, device, seconds=seconds)
    if accused := [one.tool for one in found if one.finding]:
        shared = _of_the_rival(rival, inputs, device, seconds, accused)
        found = tuple(replace(one, rival=one.tool in shared) if one.finding else one for one in found)
    answer = replace(answer, sanitizer=found)
    if answer.verdict is Verdict.WRONG:
        return answer
    own = [one for one in found if one.finding and not one.rival]
    late = [one for one in found if one.trouble]
    if own:
        said = f"{own[0].tool}: {(own[0].finding or '').replace(chr(10), '; ')}"
        return replace(
            answer, verdict=Verdict.WRONG, reason=str(Reason.SANITIZER), sentence=one_line(said), stage=Stage.RIGHT
        )
    if late and answer.verdict is not Verdict.UNDECIDED:
        said = one_line(f"{late[0].tool} says nothing: {late[0].trouble}")
        return replace(answer, verdict=Verdict.UNDECIDED, reason=str(Reason.SERVICE_FAILED), sentence=said)
    return answer


def finding_in(output: str) -> str | None:
    """The first finding in a tool's output, in a few lines; None if there is none."""
    lines = [(match[1] or "").rstrip() for line in output.splitlines() if (match := _LINE.match(line.rstrip()))]
    for place, line in enumerate(lines):
        if line.startswith(" ") or _NO_FINDING.match(line):
            continue
        more = []
        for below in lines[place + 1 :]:
            if not below.startswith(" "):
                break
            if _PLACE.match(below.strip()):
                more.append(below.strip())
        return "\n".join([line.removeprefix("Error: "), *more][:MOST_LINES])
    return None


def _result(tool: str, ran: Ran, spent: float, *, limit: float) -> Sanitized:
    finding, trouble = None, None
    if ran.code is None:
        trouble = f"it did not end within {limit:g} s"
    elif ran.code == FOUND:
        finding = finding_in(ran.output) or f"{tool} found an error, and printed none"
    elif ran.code != 0 or ran.result is None:
        last = next((line for line in reversed(ran.output.splitlines()) if line.strip()), "it printed nothing")
        trouble = one_line(f"it ended with exit code {ran.code} before the calls had ended: {last}")
    return Sanitized(tool=tool, finding=finding, trouble=trouble, seconds=spent)


def _of_the_rival(rival: Any, inputs: Inputs, device: str, seconds: float, tools: Sequence[str]) -> set[str]:
    """The tools that find an error in the rival as well; none if it cannot be sent to another process."""
    if rival is None:
        return set()
    try:
        found = sanitized(rival, inputs, device, seconds=seconds, tools=tools)
    except (pickle.PicklingError, AttributeError, TypeError):
        return set()
    return {one.tool for one in found if one.finding}
