"""Examines a candidate of the user's own problem on hard inputs: those on which careless kernels fail.

Nobody has seen to it that these inputs make sense to the kernel. So one where the rival itself fails, or gives another
answer than float64, is left out. Where a result hangs on the last bits of its inputs, as that of a norm of equal
values does, the tolerance is as wide as the rival's result moves when these bits change.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from perfsuite.oracle.chance import Dice
from perfsuite.oracle.check import checked
from perfsuite.oracle.form import check_form, check_kind, values_in
from perfsuite.oracle.imprecise import moved_limits, results_moved
from perfsuite.oracle.judgement import Judgement
from perfsuite.oracle.measures import measure
from perfsuite.oracle.worth import REFUSALS, neighbour
from perfsuite.oracle.yardstick import LibraryWrongError
from perfsuite.outcome import Reason
from perfsuite.problems import Custom
from perfsuite.problems.base import Inputs, Problem, ReferenceUnavailableError
from perfsuite.problems.redraw import MILDER
from perfsuite.problems.tensors import copy_in_place, keep, map_tensors, same_bits

if TYPE_CHECKING:
    import torch

SECONDS = 1.0
"""Time on a processor after which no further hard input is tried. Time that others take from it does not count."""
LONGEST_SECONDS = 15.0
"""Time by the clock on the wall after which none is tried."""


AS_THE_RIVAL = Judgement(ok=True, reason=None, sentence="the rival's result, bit by bit")
"""The judgement of a result that cannot be wrong, since the rival's own error sets the limit. Nothing was computed in
float64, so it is not known whether the rival is right on these inputs."""


def as_the_rivals(problem: Problem, output: Any, expected: Any) -> bool:
    """True if a result has the form and the bits of the rival's, and the right answer is the rival itself in float64.

    Where there is another reference, it also tells whether the rival is right, and is asked each time.
    """
    if not isinstance(problem, Custom) or problem.reference is not None:
        return False
    return check_form(output, expected) is None and same_bits(output, expected)


def examine_hard(
    problem: Problem, candidate: Callable[..., Any], generator: torch.Generator, library: Callable[..., Any]
) -> tuple[Judgement | None, tuple[str, ...], dict[str, bool | None]]:
    """(judgement of the first hard input on which `candidate` is wrong, or None; those without time for them; the
    others, and whether the rival's answer on them is right: None if that was not asked).

    Exceptions of the candidate are passed on where the rival runs.
    """
    busy, start, left_out = time.thread_time(), time.monotonic(), list[str]()
    tried: dict[str, bool | None] = {}

    def late() -> bool:
        spent = time.monotonic() - start  # a thread works no longer than that, and its own time takes a system call
        return spent > SECONDS and (spent > LONGEST_SECONDS or time.thread_time() - busy > SECONDS)

    for name in problem.hard_inputs():
        if late():
            left_out.append(name)
            continue
        for one in (name, *([MILDER[name]] if name in MILDER else [])):
            found = _on(problem, candidate, generator, library, one)
            tried[one] = None if found is AS_THE_RIVAL else found is not None
            if found is not None and not found.ok:
                return replace(found, sentence=f"on hard inputs ({one}): {found.sentence}"), tuple(left_out), tried
            if found is not None:
                break
    if (other := neighbour(problem)) is not None and not late():
        try:
            found = _on(other, candidate, generator, library, "normal")
        except REFUSALS:  # a kernel may refuse sizes
            found = None
        if found is not None and not found.ok:
            return replace(found, sentence=f"at other sizes: {found.sentence}"), tuple(left_out), tried
    return None, tuple(left_out), tried


def _on(
    problem: Problem, candidate: Callable[..., Any], generator: torch.Generator, library: Callable[..., Any], name: str
) -> Judgement | None:
    """The judgement on inputs of that name; None if the rival says nothing on them."""
    import torch

    inputs = problem.inputs(generator, distribution=name)
    kept = map_tensors(inputs, copy_in_place)
    dice = Dice(generator.device)
    with torch.no_grad():
        try:
            expected = keep(map_tensors(kept, copy_in_place).call(library))
        except Exception:  # these inputs are none of the user's
            return None
        if not finite(expected):
            return None
        dice.rewind()
        output = inputs.call(candidate)
        return _judged(problem, kept, output, expected, library, name, dice, in_full=name in MILDER)


def judge_hard(
    problem: Problem, inputs: Inputs, output: Any, library: Callable[..., Any], name: str
) -> Judgement | None:
    """The judgement of a result on hard inputs of that name; None if the rival says nothing on them."""
    import torch

    with torch.no_grad():
        expected = keep(map_tensors(inputs, copy_in_place).call(library))
        return _judged(problem, inputs, output, expected, library, name, None) if finite(expected) else None


def rival_is_right(problem: Problem, inputs: Inputs, library: Callable[..., Any], name: str) -> bool:
    """True if the rival runs on hard inputs of that name, and its result there is near enough to be a measure."""
    import torch

    with torch.no_grad():
        try:
            expected = keep(map_tensors(inputs, copy_in_place).call(library))
            known = finite(expected)
        except Exception:  # these inputs are none of the user's
            return False
        return known and _judged(problem, inputs, expected, expected, library, name, None, in_full=True) is not None


def _judged(
    problem: Problem,
    kept: Inputs,
    output: Any,
    expected: Any,
    library: Callable[..., Any],
    name: str,
    dice: Dice | None,
    *,
    in_full: bool = False,
) -> Judgement | None:
    """The judgement, or None. in_full: the right answer is computed also for the rival's own bits."""
    if (fault := check_kind(output)) is not None:
        return fault
    try:
        if not in_full and as_the_rivals(problem, output, expected):
            return AS_THE_RIVAL
        judgement, _ = checked(
            problem, kept, output, expected, library=library, distribution=name, whole=False, dice=dice
        )
    except (LibraryWrongError, ReferenceUnavailableError):
        return None
    if judgement.reason is Reason.REFERENCE_IMPRECISE:
        return None
    if judgement.ok or judgement.reason is not Reason.INACCURATE:
        return judgement
    return replace(judgement, ok=True, reason=None) if _ill_conditioned(kept, output, expected, library) else judgement


def finite(result: Any) -> bool:
    """True if no value of a result is infinite or NaN."""
    return all(_finite(value) for _, value in values_in(result) if value.is_floating_point() and value.numel())


def _finite(value: torch.Tensor) -> bool:
    """By the largest magnitude, which is infinite or NaN where one value is: one pass over memory."""
    import torch

    if value.element_size() == 1:  # 8 bits have no such operator
        value = value.float()
    return math.isfinite(torch.linalg.vector_norm(value, math.inf).item())


def _ill_conditioned(inputs: Inputs, output: Any, expected: Any, library: Callable[..., Any]) -> bool:
    """True if every tensor of `output` is as near to the rival's as that one moves when the inputs barely do."""
    moved = results_moved(library, inputs)
    for place, ((_, mine), (_, rivals)) in enumerate(zip(values_in(output), values_in(expected), strict=True)):
        if not (mine.is_floating_point() or mine.is_complex()):
            if bool((mine != rivals).any()):
                return False
            continue
        found = measure(mine, rivals.to(_wide(rivals)), rivals)
        if not moved_limits(found, rivals, [each[place] for each in moved if place < len(each)]).allow(found):
            return False
    return True


def _wide(tensor: torch.Tensor) -> torch.dtype:
    import torch

    return torch.complex128 if tensor.is_complex() else torch.float64
