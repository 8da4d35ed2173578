"""Judges one answer: its form, then its numbers, with the tolerance that the library's own error sets."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from perfsuite.guards.poison import POISON_HALF
from perfsuite.oracle.cache import cached_reference
from perfsuite.oracle.effort import rows_to_check
from perfsuite.oracle.form import check_form
from perfsuite.oracle.judgement import Judgement, wrong
from perfsuite.oracle.measures import Measures, measure
from perfsuite.oracle.yardstick import LibraryWrongError, Limits, limits, require_plausible, second_look
from perfsuite.outcome import Reason
from perfsuite.problems.base import Inputs, Problem, ReferenceUnavailableError
from perfsuite.problems.checks import plain_name
from perfsuite.problems.tensors import tensors_in

if TYPE_CHECKING:
    import torch


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
    the worst element, the candidate may err twice as much, plus one unit in the last place at the output's scale.
    whole: False to compare only random rows of a large result on a GPU, as is always done on a CPU.
    Raises ReferenceUnavailableError without a float64 answer, LibraryWrongError if the library's result is wrong.
    """
    import torch

    library = rival or problem.library()
    with torch.no_grad():
        if rival_output is None:
            rival_output = inputs.call(library)
        fault = compare_form(problem, inputs, candidate_output, rival_output)
        if fault is not None:
            return fault
        ours, theirs = list(tensors_in(candidate_output)), list(tensors_in(rival_output))
        if (rows := rows_to_check(problem, ours[0].device.type, whole=whole)) is not None:
            rows = rows.to(ours[0].device)
        right = list(tensors_in(cached_reference(problem, inputs, rows=rows)))
        _require_shapes(problem, _shapes_of_all_rows(problem, right, rows), _shapes(theirs))
        judgement = wrong(Reason.BAD_SHAPE, "the candidate returns no tensor")
        for place, (one, exact, other) in enumerate(zip(ours, right, theirs, strict=True)):
            if rows is not None:
                one, other = (t.index_select(-2, rows) for t in (one, other))
            found = measure(one, exact, other, poison=POISON_HALF)
            require_plausible(found, distribution)
            allowed = limits(found)
            if not allowed.allow(found):
                allowed = second_look(
                    problem, inputs, found, one, exact, library, place=place, rows=rows, distribution=distribution
                )
            judgement = judge(found, allowed, plain_name(one.dtype), rows)
            if not judgement.ok:
                break
    return judgement


def compare_form(problem: Problem, inputs: Inputs, output: Any, expected: Any) -> Judgement | None:
    """`check_form` against the library's result; LibraryWrongError if the library's shape is the wrong one."""
    fault = check_form(output, expected, inputs)
    if fault is None or fault.reason is not Reason.BAD_SHAPE:
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

    device = next(tensors_in(inputs)).device
    row = None if problem.row_count is None else torch.zeros(1, dtype=torch.long, device=device)
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
    return [tuple(tensor.shape) for tensor in tensors_in(result)]


def judge(found: Measures, allowed: Limits, dtype: str, rows: torch.Tensor | None = None) -> Judgement:
    """Turn measured errors into a judgement."""
    scope = "" if rows is None else f" (in {len(rows)} rows drawn at random)"

    def judgement(reason: Reason | None, sentence: str) -> Judgement:
        return Judgement(
            ok=reason is None,
            reason=reason,
            sentence=sentence + scope,
            candidate_error=found.frobenius,
            rival_error=found.library_frobenius,
            limit=allowed.frobenius,
            candidate_worst_row=found.row,
            rival_worst_row=found.library_row,
        )

    def too_far(what: str, error: float, limit: float, theirs: float) -> Judgement:
        rule = f"twice {allowed.whose} and one {dtype} unit in the last place; the library's is {theirs:.2e}"
        return judgement(Reason.INACCURATE, f"{what} {error:.2e} against FP64, more than {limit:.2e} ({rule})")

    if found.poisoned:
        return judgement(Reason.UNWRITTEN, f"{found.poisoned} of {found.elements} elements were never written")
    if found.stray:
        said = f"{found.stray} of {found.elements} elements are NaN or infinite, or finite, where they should not be"
        return judgement(Reason.NOT_FINITE, said)
    # "not <=", so that a NaN counts as too large.
    if not found.frobenius <= allowed.frobenius:
        return too_far("relative error", found.frobenius, allowed.frobenius, found.library_frobenius)
    if not found.row <= allowed.row:
        return too_far(f"relative error of row {found.worst_row}", found.row, allowed.row, found.library_row)
    if not found.element <= allowed.element:
        what = "error of one element, relative to its row,"
        return too_far(what, found.element, allowed.element, found.library_element)
    return judgement(
        None,
        f"relative error {found.frobenius:.2e} against FP64, library {found.library_frobenius:.2e}, "
        f"allowed {allowed.frobenius:.2e}",
    )
