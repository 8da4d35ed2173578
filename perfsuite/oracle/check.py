"""Judges one answer: its form, then its numbers, with the tolerance that the library's own error sets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from perfsuite.oracle.cache import cached_reference
from perfsuite.oracle.chance import Dice, judge_by_distribution
from perfsuite.oracle.effort import rows_to_check
from perfsuite.oracle.form import check_form, values_in
from perfsuite.oracle.judgement import Judgement
from perfsuite.oracle.one_result import Judge
from perfsuite.oracle.yardstick import LibraryWrongError
from perfsuite.outcome import Reason, UnjudgeableError
from perfsuite.problems.answers import Answer
from perfsuite.problems.base import Inputs, Problem, ReferenceUnavailableError
from perfsuite.problems.checks import plain_name
from perfsuite.problems.tensors import tensors_in

if TYPE_CHECKING:
    import torch

NOTHING_COMPARED = "nothing was compared: the result has no elements"


def check(
    problem: Problem,
    inputs: Inputs,
    candidate_output: Any,
    rival_output: Any = None,
    *,
    rival: Callable[..., Any] | None = None,
    distribution: str = "normal",
    whole: bool = True,
) -> Judgement:
    """Judge `candidate_output`, the result of the candidate on `inputs`, which were drawn from `distribution`.

    rival_output: the library's result on the same inputs; by default made here with `rival`, or with the problem's own
    library. Its error against the float64 reference sets the tolerance. In the Frobenius norm, in the worst row and at
    the worst element, the candidate may err twice as much, plus the rounding of the result: one unit in the last place
    at one element, and what that does to a norm. In float32 it may err by LEAST_UNITS where the library rounds.
    whole: False to compare only random rows of a large result on a GPU, as is always done on a CPU.
    Raises ReferenceUnavailableError without a float64 answer, LibraryWrongError if the library's result is wrong.
    """
    return checked(
        problem,
        inputs,
        candidate_output,
        rival_output,
        library=problem.library() if rival is None else rival,
        distribution=distribution,
        whole=whole,
        dice=None,
    )[0]


def checked(
    problem: Problem,
    inputs: Inputs,
    candidate_output: Any,
    rival_output: Any,
    *,
    library: Callable[..., Any],
    distribution: str,
    whole: bool,
    dice: Dice | None,
) -> tuple[Judgement, Answer | None]:
    """The judgement of `check`, and the right answer if it was computed.

    dice: the states of the generators from which both results were drawn; None if each drew its own numbers.
    """
    import torch

    with torch.no_grad():
        if rival_output is None:
            rival_output = inputs.call(library)
        fault = compare_form(problem, inputs, candidate_output, rival_output)
        if fault is not None:
            return fault, None
        named, theirs = values_in(candidate_output), _values(rival_output)
        ours = [value for _, value in named]
        if not ours:
            raise UnjudgeableError(
                f"{problem.name} returns nothing that could be compared; return the tensors that the call computes"
            )
        if (rows := rows_to_check(problem, ours[0].device.type, whole=whole)) is not None:
            rows = rows.to(ours[0].device)
        if dice is not None:
            dice.rewind()
        known = cached_reference(problem, inputs, rows=rows)
        right = _values(known.values)
        _require_shapes(problem, _shapes_of_all_rows(problem, right, rows), _shapes(theirs))
        if known.random and dice is None:
            return replace(judge_by_distribution(library, inputs, candidate_output), random=True), known
        judge = Judge(problem, inputs, library, known, rows, distribution, len(ours))
        found = [judge.judge(place, *three) for place, three in enumerate(zip(ours, right, theirs, strict=True))]
        judgement = _worst(found, [path for path, _ in named])
        if known.random and not judgement.ok:
            judgement = judge_by_distribution(library, inputs, candidate_output)
    if sum(one.numel() for one in ours) == 0:
        judgement = replace(judgement, sentence=NOTHING_COMPARED)
    return replace(judgement, random=True) if known.random else judgement, known


def _worst(found: list[Judgement], paths: list[str]) -> Judgement:
    """The first fault, with the path of its tensor; without a fault, the judgement nearest to its limit."""
    for path, one in zip(paths, found, strict=True):
        if not one.ok:
            return replace(one, sentence=f"output{path}: {one.sentence}") if len(found) > 1 else one
    return max(found, key=lambda one: one.share)


def compare_form(problem: Problem, inputs: Inputs, output: Any, expected: Any) -> Judgement | None:
    """`check_form` against the library's result; LibraryWrongError if the library's shape or dtype is wrong."""
    for _, tensor in values_in(expected):
        if problem.result_dtype is not None and plain_name(tensor.dtype) != problem.result_dtype:
            said = f"the rival returns {plain_name(tensor.dtype)}; the right answer is {problem.result_dtype}"
            raise LibraryWrongError(said)
    fault = check_form(output, expected)
    if fault is None or fault.reason not in (Reason.BAD_SHAPE, Reason.BAD_TYPE):
        return fault
    try:
        right = _right_shapes(problem, inputs)
    except ReferenceUnavailableError:
        return fault
    if right == _shapes(output) and right != _shapes(expected):
        told = " and ".join(map(str, _shapes(expected))) or type(expected).__name__
        raise LibraryWrongError(f"the rival returns {told}; the right answer has the candidate's shape, {right[0]}")
    return fault


def _right_shapes(problem: Problem, inputs: Inputs) -> list[tuple[int, ...]]:
    """Shapes of the right answer, from one row of it if rows can be computed alone."""
    import torch

    row = None
    if problem.row_count is not None:
        row = torch.zeros(1, dtype=torch.long, device=next(tensors_in(inputs)).device)
    return _shapes_of_all_rows(problem, problem.answer(inputs, rows=row), row)


def _shapes_of_all_rows(problem: Problem, answer: Any, rows: torch.Tensor | None) -> list[tuple[int, ...]]:
    """The shapes of the whole answer, from one with these rows only."""
    shapes, count = _shapes(answer), problem.row_count
    return shapes if rows is None or count is None else [(*shape[:-2], count, shape[-1]) for shape in shapes]


def _require_shapes(problem: Problem, right: list[tuple[int, ...]], both: list[tuple[int, ...]]) -> None:
    """Raise if candidate and library agree on shapes that the right answer does not have."""
    if right == both:
        return
    if not problem.vetted:
        raise ReferenceUnavailableError(f"the reference has shapes {right}, the library's result {both}")
    raise LibraryWrongError(f"the rival returns {both}, as the candidate does; the right answer has shape {right[0]}")


def _shapes(result: Any) -> list[tuple[int, ...]]:
    return [tuple(tensor.shape) for tensor in _values(result)]


def _values(result: Any) -> list[torch.Tensor]:
    return [value for _, value in values_in(result)]
