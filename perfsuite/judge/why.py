"""Finds the first thing to look at in a candidate that is not fast or not right: one sentence, from several sources.

Compiler reports come first, for a spill explains more than any counter. Counters and regime come from runs of the
candidate alone.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping, Sequence
from typing import Any

from perfsuite.analyze import counters
from perfsuite.analyze.regime import FREE, LEVERS, Evidence, Regime, Variation, elasticities, judge
from perfsuite.analyze.roofline import Cost
from perfsuite.judge.alone import Alone
from perfsuite.judge.answer import Kernel, WorkloadAnswer
from perfsuite.outcome import Reason, Verdict, one_line
from perfsuite.problems.base import Inputs, Problem
from perfsuite.record.json_schema import texts_below

NEAR_THE_ROOFLINE = 0.8
MANY_REGISTERS = 168
"""Registers a thread from which at most three blocks of 128 threads fit on a multiprocessor of 65,536."""
_ON_PROCESSORS: Mapping[Regime, str] = {
    "compute": "use the processor's vector instructions, and block for registers",
    "memory": "touch memory less: fuse what passes between operators, and block for the caches",
    "overhead": "do more in each call: fewer and larger operators, or torch.compile",
}


def first_look(
    answer: WorkloadAnswer, problem: Problem, source: Any, kernels: Sequence[Kernel], *, device: str, seconds: float
) -> str:
    """The sentence. kernels: those that the compiler reported. seconds: the longest time of each run alone."""
    if found := [one for one in answer.sanitizer if one.finding and not one.rival]:
        return one_line(f"{found[0].tool} names the place: {(found[0].finding or '').replace(chr(10), '; ')}")
    if answer.verdict is Verdict.WRONG:
        return _remedy(answer)
    spilling = max(kernels, key=lambda one: one.spill_bytes, default=None)
    if spilling is not None and spilling.spill_bytes:
        return one_line(
            f"{spilling.name} spills {spilling.spill_bytes} bytes a thread to local memory on {spilling.arch} "
            f"({spilling.registers} registers): keep fewer values alive, or make its tile smaller"
        )
    if (answer.roofline_share or 0.0) >= NEAR_THE_ROOFLINE:
        share = answer.roofline_share
        return f"nothing: it takes {share:.0%} of what the card's data sheet allows for the stated work"
    said = [*_counted(problem, source, device, seconds), *_regime(problem, source, device, seconds)]
    crowded = max(kernels, key=lambda one: one.registers, default=None)
    if crowded is not None and crowded.registers >= MANY_REGISTERS:
        said.append(f"{crowded.name} takes {crowded.registers} registers a thread, so that few warps fit")
    return "; ".join(said) or "neither counters, regime nor compiler say anything"


def regime_of(times: Mapping[str, Any], problems: Sequence[Problem], *, device: str) -> str:
    """The regime in words, from the times of calls on a problem and on its variations."""
    seconds = times["seconds"]
    base, rest = problems[0], problems[1:]
    variations = [
        Variation(
            math.log((one.flops or 1.0) / (base.flops or 1.0)),
            math.log((one.bytes or 1.0) / (base.bytes or 1.0)),
            math.log(took / seconds[0]),
        )
        for one, took in zip(rest, seconds[1:], strict=True)
    ]
    if device == "cuda":
        cost = Cost(base.flops, base.bytes) if base.flops and base.bytes else None
        evidence = Evidence(
            seconds=seconds[0], host_seconds=times["host_seconds"], busy_seconds=times["busy"],
            communication_seconds=times["communication"], kernels=times["kernels"], variations=tuple(variations),
        )  # fmt: skip
        found = judge(evidence, cost=cost)
        lever = LEVERS[found.regime][0] if LEVERS[found.regime] else "no lever is sure"
        return f"bound by {found.regime}: {found.sentence}; {lever}"
    arithmetic, bytes_ = elasticities(variations)
    if arithmetic is None or bytes_ is None:
        return "its regime is unknown: the problem has no variations of arithmetic and bytes"
    regime: Regime = "compute" if arithmetic > bytes_ else "memory"
    regime = "overhead" if max(arithmetic, bytes_) < FREE else regime
    costs = f"arithmetic x2 costs {2.0**arithmetic - 1:+.0%} time, bytes x2 {2.0**bytes_ - 1:+.0%}"
    return f"bound by {regime}: {costs}; {_ON_PROCESSORS[regime]}"


def _remedy(answer: WorkloadAnswer) -> str:
    """The remedy of the reason, and where a candidate raised."""
    member = next((one for one in Reason if one.value == answer.reason), None)
    remedy = texts_below(Reason).get(member.name, "").partition("Remedy: ")[2] if member else ""
    where = f"{answer.frames[-1]}: " if answer.frames else ""
    return where + (remedy or answer.sentence)


def _regime(problem: Problem, source: Any, device: str, seconds: float) -> list[str]:
    problems = [problem, *problem.variations()]
    try:
        with Alone(source, [_inputs(one, device) for one in problems], device) as alone:
            ran = alone.run("times", seconds=seconds)
    except RuntimeError as error:  # the variations do not fit in memory
        return [one_line(f"its regime is unknown: {error}")]
    times = ran.result
    if times is None or not _sane(times, len(problems), device):
        return ["its regime is unknown: the run of the candidate alone did not end"]
    return [regime_of(times, problems, device=device)]


def _sane(times: Mapping[str, Any], count: int, device: str) -> bool:
    """True if the numbers can be times; the process that wrote them is the candidate's."""
    each = times.get("seconds")
    names = ("host_seconds", *(("busy", "communication", "kernels") if device == "cuda" else ()))
    numbers = [*(each if isinstance(each, list) else ()), *(times.get(name) for name in names)]
    plain = all(isinstance(one, int | float) and 0 <= one < 1e9 for one in numbers)
    return plain and isinstance(each, list) and len(each) == count and all(each)


def _counted(problem: Problem, source: Any, device: str, seconds: float) -> list[str]:
    """The sentence about the longest kernel, by Nsight Compute; nothing without a card, ncu or its permission."""
    if device != "cuda" or (ncu := shutil.which("ncu")) is None:
        return []
    line = [ncu, "--csv", "--page", "raw", "--print-units", "base", "--profile-from-start", "off"]
    line += ["--clock-control", "none", "--launch-count", "16"]
    line += [word for section in counters.SECTIONS for word in ("--section", section)]
    line += ["--metrics", ",".join(counters.METRICS)]
    with Alone(source, [_inputs(problem, device)], device) as alone:
        ran = alone.run("profiled", under=line, seconds=seconds)
    try:
        kernels = counters.read(ran.output.splitlines(keepends=True))
    except (counters.CountersError, KeyError):
        return []
    longest = max(kernels, key=lambda one: one.seconds)
    return [one_line(f"{longest.name.partition('(')[0]}: {counters.verdict(longest)}")]


def _inputs(problem: Problem, device: str) -> Inputs:
    import torch

    return problem.inputs(torch.Generator(device=device).manual_seed(0))
