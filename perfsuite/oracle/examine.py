"""The whole eager examination of a candidate: called twice under watch, then judged.

The order matters. Memory is poisoned first; the candidate runs before any right answer exists, so there is none to be
found; its output is copied on the same stream at once, so that work put off to another stream, to a thread or to the
checker comes too late; the second call gets the same values at other addresses.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from perfsuite.guards.poison import arrive_late, poison_free_memory
from perfsuite.oracle.check import check, compare_form
from perfsuite.oracle.effort import on_adversarial_values
from perfsuite.oracle.form import check_form, check_kind
from perfsuite.oracle.judgement import Judgement, wrong
from perfsuite.oracle.reference import reference
from perfsuite.oracle.worth import REFUSALS, check_answer_depends, check_inputs_vary, neighbour
from perfsuite.outcome import Reason
from perfsuite.problems.base import Inputs, Problem
from perfsuite.problems.tensors import copy_in_place, map_tensors, same_bits, tensors_in

if TYPE_CHECKING:
    import torch

# Calls of the library, within a bound of seconds, that must give the same bits before the same is asked of a candidate:
# some differ from themselves once in twenty calls, and cuDNN's attention, with one query a head, less than once in 64.
LIBRARY_REPEATS = 4096
REPEATS_SECONDS = 0.5


def examine(
    problem: Problem,
    candidate: Callable[..., Any],
    generator: torch.Generator,
    *,
    rival: Callable[..., Any] | None = None,
    distribution: str = "normal",
    deterministic: bool = True,
    adversarial: bool = True,
    held_out: bool = False,
) -> Judgement:
    """Judge `candidate` on fresh inputs from `generator`, on its device.

    rival: the library whose error sets the tolerance; None for the problem's own. deterministic: whether the same
    inputs must give the same bits twice (as long as they do with the library). adversarial: whether a small enough
    problem, drawn from ordinary values, is examined on its hard distributions too; the judgement is that of the
    ordinary values unless one of the others is wrong. held_out: whether it is examined at slightly other sizes too,
    where it may refuse by raising, but not be wrong. Whatever the candidate or the rival raises otherwise is passed on;
    WeakProblemError where the problem could be passed without being solved.
    """
    judgement = _examine(problem, candidate, generator, rival, distribution, deterministic)
    if judgement.ok and held_out and (other := neighbour(problem)) is not None:
        try:
            found = _examine(other, candidate, generator, None, distribution, deterministic)
        except REFUSALS:
            found = judgement
        if not found.ok:
            return replace(found, sentence=f"at the sizes {other.name}, which nobody listed: {found.sentence}")
    if not (judgement.ok and adversarial and distribution in ("normal", "uniform")):
        return judgement
    if not on_adversarial_values(problem, generator.device.type):
        return judgement
    for harder in problem.hard_distributions:
        found = _examine(problem, candidate, generator, rival, harder, deterministic)
        if not found.ok:
            return replace(found, sentence=f"on inputs of the distribution {harder}: {found.sentence}")
    return judgement


def _examine(
    problem: Problem,
    candidate: Callable[..., Any],
    generator: torch.Generator,
    rival: Callable[..., Any] | None,
    distribution: str,
    deterministic: bool,
) -> Judgement:
    import torch

    inputs = problem.inputs(generator, distribution=distribution)
    if not problem.vetted:
        check_inputs_vary(problem, inputs)
    kept = map_tensors(inputs, copy_in_place)
    with torch.no_grad():
        poison_free_memory(inputs)
        arrive_late(inputs, kept)
        first, seen, fault = _call(candidate, inputs)
        if fault is not None:
            return fault
        synchronise(generator.device)
        if not same_bits(inputs, kept):
            return wrong(Reason.INPUTS_CHANGED, _changed(inputs, kept))
        elsewhere = map_tensors(kept, copy_in_place)
        _, again, fault = _call(candidate, elsewhere)
        if fault is not None:
            return fault
        synchronise(generator.device)
        if not same_bits(first, seen):
            return wrong(
                Reason.OUTPUT_CHANGED,
                "the output changed after the call had returned: work was still going on elsewhere, or a second call "
                "wrote into the result of the first",
            )
        expected = kept.call(rival or problem.library())
        fault = compare_form(problem, kept, seen, expected) or check_form(again, expected, kept)
        if fault is not None:
            return fault
        judgement = check(problem, kept, seen, expected, rival=rival, distribution=distribution, whole=False)
        if judgement.ok and not problem.vetted:
            other = problem.inputs(generator, distribution=distribution).call(rival or problem.library())
            check_answer_depends(problem, reference(problem, kept), expected, other)
        if judgement.ok and deterministic and not same_bits(seen, again) and _repeats(rival, problem, kept, expected):
            return replace(judgement, ok=False, reason=Reason.NOT_DETERMINISTIC, sentence=_differs(seen, again))
    return judgement


def _call(candidate: Callable[..., Any], inputs: Inputs) -> tuple[Any, Any, Judgement | None]:
    """The candidate's result, a copy of it made right behind it on the same stream, and what is wrong with its kind."""
    import torch

    output = inputs.call(candidate)
    fault = check_kind(output, inputs)
    return (output, None, fault) if fault is not None else (output, map_tensors(output, torch.clone), None)


def synchronise(device: torch.device) -> None:
    """Wait for everything on a GPU, whichever stream it runs on."""
    import torch

    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _repeats(rival: Callable[..., Any] | None, problem: Problem, inputs: Inputs, expected: Any) -> bool:
    """Whether the library gives the same bits again and again: more than it does is not asked of a candidate."""
    library = rival or problem.library()
    start = time.monotonic()
    for number in range(LIBRARY_REPEATS):
        # Every other time at other addresses, as the candidate was called.
        again = map_tensors(inputs, copy_in_place) if number % 2 else inputs
        if not same_bits(again.call(library), expected):
            return False
        if time.monotonic() - start > REPEATS_SECONDS:
            break
    return True


def _changed(inputs: Inputs, kept: Inputs) -> str:
    places = [
        str(place)
        for place, (one, other) in enumerate(zip(tensors_in(inputs), tensors_in(kept), strict=True))
        if not same_bits(one, other)
    ]
    return f"the candidate wrote into its inputs (argument {', '.join(places)})"


def _differs(one: Any, other: Any) -> str:

    pairs = zip(tensors_in(one), tensors_in(other), strict=True)
    unequal = sum(int((a != b).sum()) for a, b in pairs)
    total = sum(tensor.numel() for tensor in tensors_in(one))
    return f"the same inputs gave other bits the second time in {unequal} of {total} elements"
