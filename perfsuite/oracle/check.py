"""Is this answer right: its form, then its numbers, with the tolerance that the library's own error sets."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from perfsuite.oracle.form import check_form
from perfsuite.oracle.judgement import Judgement, wrong
from perfsuite.oracle.measures import Measures, measure
from perfsuite.oracle.memory import POISON_HALF
from perfsuite.oracle.reference import ReferenceUnavailableError, reference, rows_to_check
from perfsuite.oracle.tensors import tensors_in
from perfsuite.problems import Attention, Custom, Gemm
from perfsuite.problems.base import Inputs, Problem
from perfsuite.verdict.outcome import Reason

if TYPE_CHECKING:
    import torch

# How often the library's error a candidate may err. The floor of one unit in the last place comes on top.
TIMES_THE_LIBRARY = 2.0


def check(
    problem: Problem,
    inputs: Inputs,
    candidate_output: Any,
    rival_output: Any = None,
    *,
    rival: Callable[..., Any] | None = None,
) -> Judgement:
    """Judge `candidate_output`, the result of the candidate on `inputs`.

    rival_output: the library's result on the same inputs; made here with `rival`, or with the problem's own library,
    where it is not given. Its error against the float64 reference sets the tolerance: in the Frobenius norm, in the
    worst row and at the worst element, the candidate may err at most twice as much, plus one unit in the last place at
    the output's scale. Raises ReferenceUnavailableError where a custom problem has no float64 answer.
    """
    import torch

    with torch.no_grad():
        if rival_output is None:
            rival_output = inputs.call(rival or library_of(problem))
        fault = check_form(candidate_output, rival_output, inputs)
        if fault is not None:
            return fault
        ours, theirs = list(tensors_in(candidate_output)), list(tensors_in(rival_output))
        rows = rows_to_check(problem, ours[0].device.type)
        right = list(tensors_in(reference(problem, inputs, rows=rows)))
        if len(right) != len(theirs):
            raise ReferenceUnavailableError(f"the reference returns {len(right)} tensors, the library {len(theirs)}")
        judgements = []
        for one, exact, library in zip(ours, right, theirs, strict=True):
            if rows is not None:
                one, library = (t.index_select(-2, rows.to(t.device)) for t in (one, library))
            if exact.shape != library.shape:
                raise ReferenceUnavailableError(
                    f"the reference has shape {tuple(exact.shape)}, the library's result {tuple(library.shape)}"
                )
            measures = measure(one, exact, library, poison=POISON_HALF)
            judgements.append(judge(measures, str(one.dtype).removeprefix("torch."), rows))
    return next((judgement for judgement in judgements if not judgement.ok), judgements[0])


def library_of(problem: Problem) -> Callable[..., Any]:
    """The callable whose error sets the tolerance where no rival is named."""
    if isinstance(problem, Custom):
        if problem.against is not None:
            return problem.against
        if problem.reference is not None:
            return problem.reference
        raise ReferenceUnavailableError(f"{problem.label} has nothing to be compared with: pass reference= or against=")
    assert isinstance(problem, Gemm | Attention)
    return problem.rival(problem.default_rival)


def judge(found: Measures, dtype: str, rows: torch.Tensor | None = None) -> Judgement:
    """Turn measured errors into a judgement."""
    limit = TIMES_THE_LIBRARY * found.library_frobenius + found.frobenius_floor
    row_limit = TIMES_THE_LIBRARY * found.library_row + found.row_floor
    element_limit = TIMES_THE_LIBRARY * found.library_element + found.element_floor
    errors = {
        "candidate_error": found.frobenius,
        "rival_error": found.library_frobenius,
        "limit": limit,
        "candidate_worst_row": found.row,
        "rival_worst_row": found.library_row,
    }
    scope = "" if rows is None else f" (in {len(rows)} rows drawn at random)"
    allowed = f"twice the library's {{theirs:.2e}} and one {dtype} unit in the last place"
    if found.poisoned:
        said = f"{found.poisoned} of {found.elements} elements were never written{scope}"
        return wrong(Reason.UNWRITTEN, said)
    if found.stray:
        said = f"{found.stray} of {found.elements} elements are NaN, infinite or finite where they should not be{scope}"
        return Judgement(False, Reason.NOT_FINITE, said, **errors)
    # Written so that a NaN counts as too large.
    if not found.frobenius <= limit:
        rule = allowed.format(theirs=found.library_frobenius)
        said = f"relative error {found.frobenius:.2e} against FP64 is more than {limit:.2e}: {rule}{scope}"
    elif not found.row <= row_limit:
        rule = allowed.format(theirs=found.library_row)
        said = f"row {found.worst_row} errs by {found.row:.2e} against FP64, more than {row_limit:.2e}: {rule}{scope}"
    elif not found.element <= element_limit:
        rule = allowed.format(theirs=found.library_element)
        said = (
            f"an element errs by {found.element:.2e} of its row's scale against FP64, more than {element_limit:.2e}: "
            f"{rule}{scope}"
        )
    else:
        said = (
            f"relative error {found.frobenius:.2e} against FP64, library {found.library_frobenius:.2e}, "
            f"allowed {limit:.2e}{scope}"
        )
        return Judgement(True, None, said, **errors)
    return Judgement(False, Reason.INACCURATE, said, **errors)
