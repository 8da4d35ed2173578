"""The whole eager examination of a candidate: called twice under watch, then judged.

The order matters. Memory is poisoned first. The candidate runs before any right answer exists, so it cannot find one.
Its output is copied on the same stream at once, so work put off to another stream, a thread or the checker comes too
late. The second call gets the same values at other addresses.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from perfsuite.guards.fingerprint import fingerprint, same_fingerprint
from perfsuite.guards.poison import arrive_late, poison_free_memory
from perfsuite.oracle.agreement import apart
from perfsuite.oracle.chance import Dice
from perfsuite.oracle.check import checked, compare_form
from perfsuite.oracle.effort import on_adversarial_values
from perfsuite.oracle.form import (
    check_form,
    check_kind,
    check_memory,
    in_one_memory,
    memory_shared,
    require_judgeable,
)
from perfsuite.oracle.hard import examine_hard
from perfsuite.oracle.judgement import Judgement, wrong
from perfsuite.oracle.worth import REFUSALS, WeakProblemError, check_answer_depends, check_inputs_vary, neighbour
from perfsuite.oracle.yardstick import FARTHEST_LIBRARY, LibraryWrongError
from perfsuite.outcome import Reason, UnjudgeableError
from perfsuite.problems.base import Inputs, Problem
from perfsuite.problems.tensors import copy_in_place, keep, map_tensors, same_bits, tensors_in

if TYPE_CHECKING:
    import torch

LIBRARY_REPEATS, REPEATS_SECONDS, LONGEST_REPEATS_SECONDS = 4096, 0.5, 5.0
"""Bounds on the calls of the library that must give the same bits before a candidate must: their number, time on a
processor, and time by the clock on the wall. Some libraries differ from themselves once in twenty calls; cuDNN's
attention, with one query a head, less than once in 64."""


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

    rival: the library whose error sets the tolerance; None for the problem's own.
    deterministic: the same inputs must give the same bits twice, unless the library itself varies.
    adversarial: a small problem is examined on its hard distributions too. The judgement is that of the ordinary values
    unless one of the others is wrong.
    held_out: slightly other sizes are examined too. There the candidate may refuse by raising, but not be wrong.
    Other exceptions of candidate and rival are passed on. Raises WeakProblemError for a problem that a candidate could
    pass without solving it.
    """
    judgement = _examine(problem, candidate, generator, rival, distribution, deterministic)
    if judgement.ok and held_out:
        found = _at_other_sizes(problem, candidate, generator, rival, distribution, deterministic)
        if not found.ok:
            return found
        judgement = replace(judgement, note=found.note)
    if not (judgement.ok and adversarial and distribution in ("normal", "uniform")):
        return judgement
    if not on_adversarial_values(problem, generator.device.type):
        return judgement
    if not problem.vetted and type(problem).hard_inputs is not Problem.hard_inputs:
        wrong_there, left_out, hard = examine_hard(
            problem, candidate, generator, problem.library() if rival is None else rival
        )
        return wrong_there or replace(judgement, left_out=left_out, hard=hard)
    for harder in problem.hard_distributions:
        found = _examine(problem, candidate, generator, rival, harder, deterministic)
        if not found.ok:
            return replace(found, sentence=f"on inputs of the distribution {harder}: {found.sentence}")
    return judgement


def _at_other_sizes(
    problem: Problem,
    candidate: Callable[..., Any],
    generator: torch.Generator,
    rival: Callable[..., Any] | None,
    distribution: str,
    deterministic: bool,
) -> Judgement:
    """The judgement at sizes near those of the problem; one without a fault, with a note, if it says nothing."""
    other = neighbour(problem)
    if other is None:
        said = f"other sizes were not checked: {problem.family} {problem.name} has no sizes that may change"
        return Judgement(ok=True, reason=None, sentence="", note=said)
    # A family without a library has only the case's rival, which is then no method of the problem.
    library = None if other.default_rival is not None else rival
    try:
        found = _examine(other, candidate, generator, library, distribution, deterministic)
    except REFUSALS as error:
        said = next(iter(str(error).splitlines()), type(error).__name__)
        return Judgement(ok=True, reason=None, sentence="", note=f"the sizes {other.name} are not taken: {said}")
    return replace(found, sentence=f"at the sizes {other.name}, which nobody listed: {found.sentence}")


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
    # Hard inputs may be constant, and have an answer that is the same for all of them: softmax of constant rows.
    unproven = not problem.vetted and distribution not in problem.hard_distributions
    if unproven:
        check_inputs_vary(problem, inputs)
    kept = map_tensors(inputs, copy_in_place)
    dice = Dice(generator.device)
    with torch.no_grad():
        poison_free_memory(inputs)
        arrive_late(inputs, kept)
        library = problem.library() if rival is None else rival
        first, seen, fault = _call(candidate, inputs, generator.device)
        if fault is not None:
            require_judgeable(kept.call(library))
            return fault
        if not same_bits(inputs, kept):
            return wrong(Reason.INPUTS_CHANGED, _changed(inputs, kept))
        # The generators go on: a candidate that draws numbers varies, and only one whose rival draws may.
        # The copy lies at other addresses. Large arguments leave no room for a third set.
        again, _, fault = _call(candidate, kept, generator.device, copied=False)
        if fault is not None:
            return fault
        if not same_bits(inputs, kept):
            return wrong(Reason.INPUTS_CHANGED, _changed(inputs, kept))
        if not same_bits(first, seen):
            return wrong(
                Reason.OUTPUT_CHANGED,
                "the output changed after the call had returned: work was still going on elsewhere, or a second call "
                "wrote into the result of the first",
            )
        shared = memory_shared(first, inputs)
        fault = check_form(again, seen)
        differs = None if fault is not None or same_bits(seen, again) else _differs(seen, again)
        held = again if in_one_memory(first, again, kept) else None
        del first, again, inputs
        dice.rewind()
        expected = kept.call(library)
        require_judgeable(expected)
        if (fault := compare_form(problem, kept, seen, expected) or fault) is not None:
            return fault
        if (fault := check_memory(shared, memory_shared(expected, kept))) is not None:
            return fault
        try:
            judgement, known = checked(
                problem, kept, seen, expected, library=library, distribution=distribution, whole=False, dice=dice
            )
        except LibraryWrongError as error:
            _require_no_state(library, kept, expected, error)
            raise
        if judgement.ok and unproven and not judgement.random:
            fresh = problem.inputs(generator, distribution=distribution)
            if held is not None:
                _require_own_memory("candidate", candidate, held, fresh)
            other = _require_own_memory("rival", library, expected, fresh)
            right = known.values if known is not None and problem.row_count is None else problem.answer(kept)
            try:
                check_answer_depends(problem, right, expected, other)
            except WeakProblemError as error:
                _require_no_state(library, kept, expected, error)
                raise
        may_differ = not deterministic or judgement.random
        if judgement.ok and differs is not None and not may_differ and _repeats(library, kept, expected):
            return replace(judgement, ok=False, reason=Reason.NOT_DETERMINISTIC, sentence=differs)
    return judgement


def _call(
    candidate: Callable[..., Any], inputs: Inputs, device: torch.device, *, copied: bool = True
) -> tuple[Any, Any, Judgement | None]:
    """The candidate's result, a copy made right behind it on the same stream, and the fault of its kind or None.

    Waits for every stream of a GPU.
    """
    import torch

    output = inputs.call(candidate)
    if (fault := check_kind(output)) is not None:
        return output, None, fault
    copy = keep(output) if copied else None
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return output, copy, None


def _require_own_memory(who: str, function: Callable[..., Any], held: Any, inputs: Inputs) -> Any:
    """The result of one more call. UnjudgeableError if the call overwrites `held`, the result of an earlier one."""
    marks = fingerprint([Inputs((held,))])
    result = inputs.call(function)
    if same_fingerprint(marks, fingerprint([Inputs((held,))])):
        return result
    raise UnjudgeableError(
        f"a call of the {who} overwrites the result of the call before it; return new memory, or pass the buffer as an "
        "argument that the call writes (out=)"
    )


def _require_no_state(library: Callable[..., Any], inputs: Inputs, expected: Any, cause: Exception) -> None:
    """Raise UnjudgeableError if the library gives other results on equal inputs, and so has caused this error.

    Sums in free order differ by roundings, and cause no such error.
    """

    if _farthest_repeat(library, inputs, keep(expected)) > FARTHEST_LIBRARY:
        raise UnjudgeableError(
            "the rival gives other results on equal inputs: it keeps state between calls, or it draws numbers that "
            "torch's generators do not give; prepare the state by perf(..., reset=f)"
        ) from cause


def _repeats(library: Callable[..., Any], inputs: Inputs, expected: Any) -> bool:
    """True if the library gives the same bits again and again; no more is asked of a candidate."""
    return all(same_bits(again, expected) for again in _further_results(library, inputs))


def _farthest_repeat(library: Callable[..., Any], inputs: Inputs, expected: Any) -> float:
    """The largest distance of the library's further results from `expected`, relative to it; infinite for integers."""

    def distance(again: Any) -> float:
        pairs = zip(tensors_in(again), tensors_in(expected), strict=True)
        whole = [pair for pair in pairs if not (pair[1].is_floating_point() or pair[1].is_complex())]
        return apart(again, expected) if all(same_bits(*pair) for pair in whole) else math.inf

    return max(distance(again) for again in _further_results(library, inputs))


def _further_results(library: Callable[..., Any], inputs: Inputs) -> Iterator[Any]:
    """Results of more calls; every other one at other addresses, as the candidate was called."""
    busy, start = time.thread_time(), time.monotonic()
    for number in range(LIBRARY_REPEATS):
        yield (map_tensors(inputs, copy_in_place) if number % 2 else inputs).call(library)
        # Time that others take does not count: a busy machine would accuse the candidate after a few calls.
        if time.thread_time() - busy > REPEATS_SECONDS or time.monotonic() - start > LONGEST_REPEATS_SECONDS:
            break


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
