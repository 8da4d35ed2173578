"""Finds the arguments that both sides of a case write, and makes functions without effects for the checks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from perfsuite.problems import Custom
from perfsuite.problems.base import Inputs, Problem
from perfsuite.problems.written import Written, places_of, written, written_by

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Effects:
    """The effects of a call: arguments that it writes, state that is prepared before it."""

    written: Written | None = None
    reset: Callable[[Inputs], Any] | None = None
    calls_per_reset: int | None = None

    def pure(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """`function` as the checks call it: without effects, its answer holds all that it wrote."""
        if self.written is None and self.reset is None:
            return function
        return (self.written or Written((), ())).pure(function, self.reset)

    def problem(self, problem: Problem) -> Problem:
        """The problem whose right answer holds all that a call writes, from the state that a reset leaves."""
        if (self.written is None and self.reset is None) or not isinstance(problem, Custom):
            return problem
        reference = None if problem.reference is None else self.pure(problem.reference)
        against = problem.against if problem.against is None else self.pure(problem.against)
        return replace(problem, against=against, reference=reference)


def effects_of(
    problem: Problem,
    rival: Callable[..., Any] | None,
    generator: torch.Generator,
    reset: Callable[[Inputs], Any] | None = None,
) -> Effects:
    """The effects of calls of `problem`. The rival is called once on copies, to see which arguments it changes.

    reset: restores what calls change besides arguments, of a problem that has no reset of its own.

    ValueError if `writes` names an argument that there is not.
    """
    import torch

    if not isinstance(problem, Custom):
        return Effects()
    none = Effects(reset=problem.reset, calls_per_reset=problem.calls_per_reset)
    if reset is not None:
        none = Effects(reset=reset, calls_per_reset=1)
    shown = next(one for one in (rival, problem.reference, _nothing) if one is not None)
    inputs = problem.inputs(generator)
    places: set[int] = set()
    if problem.writes:
        places |= set(places_of(problem.writes, inputs, shown))
    if rival is not None:
        try:
            with torch.no_grad():
                if none.reset is not None:
                    none.reset(inputs)
                places |= set(written_by(rival, inputs))
        except Exception:  # the checks call it again, and say so
            return none
    if not places:
        return none
    return replace(none, written=written(sorted(places), inputs, shown))


def _nothing() -> None:
    """Stands for a function whose parameters have no known names."""
