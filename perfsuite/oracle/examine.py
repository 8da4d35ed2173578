"""The whole eager examination of a candidate: called twice under watch, then judged.

The order matters. Memory is poisoned first; the candidate runs before any right answer exists, so there is none to be
found; its output is copied on the same stream at once, so that work put off to another stream, to a thread or to the
checker comes too late; the second call gets the same values at other addresses.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from perfsuite.oracle.check import check, library_of
from perfsuite.oracle.form import check_form, check_kind
from perfsuite.oracle.judgement import Judgement, wrong
from perfsuite.oracle.memory import poison_free_memory
from perfsuite.oracle.tensors import copy_in_place, map_tensors, same_bits, tensors_in
from perfsuite.problems.base import Inputs, Problem
from perfsuite.verdict.outcome import Reason

if TYPE_CHECKING:
    import torch


def examine(
    problem: Problem,
    candidate: Callable[..., Any],
    generator: torch.Generator,
    *,
    rival: Callable[..., Any] | None = None,
    distribution: str = "normal",
    deterministic: bool = True,
) -> Judgement:
    """Judge `candidate` on fresh inputs from `generator`, on its device.

    rival: the library whose error sets the tolerance; None for the problem's own. deterministic: whether the same
    inputs must give the same bits twice. Whatever the candidate or the rival raises is passed on.
    """
    import torch

    inputs = problem.inputs(generator, distribution=distribution)
    kept = map_tensors(inputs, copy_in_place)
    with torch.no_grad():
        poison_free_memory(inputs)
        first = inputs.call(candidate)
        fault = check_kind(first, inputs)
        if fault is not None:
            return fault
        seen = map_tensors(first, torch.clone)
        synchronise(generator.device)
        if not same_bits(inputs, kept):
            return wrong(Reason.INPUTS_CHANGED, _changed(inputs, kept))
        second_inputs = map_tensors(kept, copy_in_place)
        second = second_inputs.call(candidate)
        fault = check_kind(second, second_inputs)
        if fault is not None:
            return fault
        again = map_tensors(second, torch.clone)
        synchronise(generator.device)
        if not same_bits(first, seen):
            return wrong(
                Reason.OUTPUT_CHANGED,
                "the output changed after the call had returned: work was still going on elsewhere, or a second call "
                "wrote into the result of the first",
            )
        expected = kept.call(rival or library_of(problem))
        fault = check_form(seen, expected, kept) or check_form(again, expected, kept)
        if fault is not None:
            return fault
        judgement = check(problem, kept, seen, expected, rival=rival, distribution=distribution)
        if judgement.ok and deterministic and not same_bits(seen, again):
            return wrong(Reason.NOT_DETERMINISTIC, _differs(seen, again))
    return judgement


def synchronise(device: torch.device) -> None:
    """Wait for everything on a GPU, whichever stream it runs on."""
    import torch

    if device.type == "cuda":
        torch.cuda.synchronize(device)


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
