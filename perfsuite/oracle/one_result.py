"""Judges the numbers of one tensor of a result, by the rule for its dtype and for the precision of the right answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from perfsuite.guards.poison import POISON_HALF
from perfsuite.oracle.form import values_in
from perfsuite.oracle.hanging import without_hanging_rows
from perfsuite.oracle.imprecise import moved_inputs, moved_limits, results_moved, soften, stand_in
from perfsuite.oracle.integers import judge_integers
from perfsuite.oracle.judgement import Judgement, wrong
from perfsuite.oracle.measures import LEAST_UNITS, Measures, measure
from perfsuite.oracle.own_rows import without_inexact_rows
from perfsuite.oracle.yardstick import (
    DRAWS,
    FARTHEST_LIBRARY,
    LARGE_DRAWS,
    LARGE_FLOPS,
    Limits,
    draws,
    limits,
    require_plausible,
    second_look,
)
from perfsuite.outcome import Reason
from perfsuite.problems.answers import Answer, Mark
from perfsuite.problems.base import Inputs, Problem
from perfsuite.problems.checks import plain_name
from perfsuite.problems.float64 import is_float64
from perfsuite.problems.tensors import tensors_in

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Judge:
    """Judges the tensors of one result, one after the other."""

    problem: Problem
    inputs: Inputs
    library: Callable[..., Any]
    known: Answer
    rows: torch.Tensor | None
    distribution: str
    count: int
    """Tensors of the result."""

    def judge(self, place: int, mine: torch.Tensor, exact: torch.Tensor, rivals: torch.Tensor) -> Judgement:
        """Judge tensor number `place`; with `rows`, `exact` has these rows only."""
        if self.rows is not None:
            mine, rivals = (tensor.index_select(-2, self.rows) for tensor in (mine, rivals))
        if not (mine.is_floating_point() or mine.is_complex()):
            return self._integers(place, mine, exact, rivals)
        dtype = plain_name(mine.dtype)
        if self.known.gaps:
            found = measure(mine, stand_in(exact, rivals), rivals, poison=POISON_HALF)
            allowed = moved_limits(found, rivals, [each[place] for each in self._moved if place < len(each)])
            return soften(judge_errors(found, allowed, dtype), allowed, self.known.gaps)
        found = measure(mine, exact, rivals, poison=POISON_HALF)
        if found.library_frobenius == 0 and is_float64((rivals,)) and not limits(found).allow(found):
            # The right answer is the rival's own: nothing wider stands behind float64.
            allowed = moved_limits(found, rivals, [each[place] for each in self._moved if place < len(each)])
            return judge_errors(found, allowed, dtype)
        if self.known.random:  # further draws have other numbers
            if found.library_frobenius > FARTHEST_LIBRARY:
                return wrong(Reason.INACCURATE, "the rival drew other numbers than its float64 form")
            return judge_errors(found, limits(found), dtype)
        # Elements that the candidate left undefined are not compared, and no answer may be near the few that remain.
        alone = measure(rivals, exact, rivals) if found.stray or found.poisoned else found
        require_plausible(alone, self.distribution)
        allowed = limits(found)
        if not allowed.allow(found):
            allowed = second_look(
                self.problem,
                self.inputs,
                found,
                mine,
                exact,
                self.library,
                place=place,
                rows=self.rows,
                distribution=self.distribution,
            )
        if not allowed.allow(found) and found.frobenius <= allowed.frobenius:
            moved = [each[place] for each in self._moved if place < len(each)]
            found = without_hanging_rows(found, mine, exact, rivals, self._at_rows(moved))
            if not allowed.allow(found):
                found = without_inexact_rows(found, allowed, mine, exact, rivals, self._on_moved_inputs(place))
        return judge_errors(found, allowed, dtype, self.rows)

    def _at_rows(self, results: list[torch.Tensor]) -> list[torch.Tensor]:
        """The rows of whole results that are judged."""
        return results if self.rows is None else [one.index_select(-2, self.rows) for one in results]

    def _on_moved_inputs(self, place: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """(float64 answer, library's answer) of the judged rows, on inputs moved by one unit in the last place."""
        large, flops = LARGE_FLOPS[next(tensors_in(self.inputs)).device.type], self.problem.flops or 0.0
        for inputs in moved_inputs(self.inputs, DRAWS if flops <= large else LARGE_DRAWS):
            answer = values_in(inputs.call(self.library))[place][1]
            right = values_in(self.problem.answer(inputs, rows=self.rows))[place][1]
            yield right, self._at_rows([answer])[0]

    def _integers(self, place: int, mine: torch.Tensor, exact: torch.Tensor, rivals: torch.Tensor) -> Judgement:
        marks = self.known.marks

        def more() -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
            device = exact.device
            for _, right, answer in draws(LARGE_DRAWS, self.problem, self.library, device, place, self.distribution):
                yield right, answer
            for moved in self._moved if self.known.gaps else ():
                yield rivals, moved[place]

        if self.known.gaps:
            return judge_integers(mine, rivals, rivals, Mark(rounded=True), more)
        return judge_integers(mine, exact, rivals, marks[place] if len(marks) == self.count else Mark(), more)

    @cached_property
    def _moved(self) -> list[list[torch.Tensor]]:
        return results_moved(self.library, self.inputs)


def judge_errors(found: Measures, allowed: Limits, dtype: str, rows: torch.Tensor | None = None) -> Judgement:
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
        least = f", but at least {LEAST_UNITS:g} units of it in a row" if found.row_least else ""
        rule = f"twice {allowed.whose}, and the rounding to {dtype}{least}; the library's is {theirs:.2e}"
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
