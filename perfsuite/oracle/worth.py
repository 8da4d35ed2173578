"""Refuses problems that a wrong kernel could pass, and chooses sizes that nobody has prepared for."""

from __future__ import annotations

import random
from typing import Any

from perfsuite.oracle.form import values_in
from perfsuite.oracle.measures import measure
from perfsuite.oracle.yardstick import limits
from perfsuite.problems.base import Inputs, Problem
from perfsuite.problems.tensors import tensors_in


class WeakProblemError(ValueError):
    """A problem that would let a wrong kernel pass, or a fast one look faster; the message says what to change."""


def check_inputs_vary(problem: Problem, inputs: Inputs) -> None:
    """Raise WeakProblemError if every floating-point input is constant.

    A card draws less power on such data, and clocks higher, than on the data that kernels meet in use.
    """
    floating = [tensor for tensor in tensors_in(inputs) if tensor.is_floating_point() and tensor.numel() > 1]
    if floating and all(bool((tensor == tensor.flatten()[0]).all()) for tensor in floating):
        raise WeakProblemError(
            f"the inputs of {problem.name} are constant: on such data a card is faster than on any other; give values "
            "that vary, such as torch.randn's"
        )


def check_answer_depends(problem: Problem, right: Any, library: Any, other: Any) -> None:
    """Raise WeakProblemError if the answer to other inputs would pass as the answer to these.

    right: the float64 answer, library: the library's, other: the library's answer to other inputs.
    """
    for (_, exact), (_, mine), (_, others) in zip(*(values_in(nest) for nest in (right, library, other)), strict=True):
        if exact.shape != others.shape or not exact.numel():
            return
        found = measure(others, exact, mine)
        if found.stray or not limits(found).allow(found):
            return
    raise WeakProblemError(
        f"the answer of {problem.name} is the same whatever the inputs are, within the tolerance, and a constant would "
        "pass; give inputs on which it depends, or args= as a callable that draws them"
    )


def neighbour(problem: Problem) -> Problem | None:
    """A problem of slightly other sizes, drawn at random; None if the family has no sizes to change."""
    chooser = random.SystemRandom()

    def near(size: int) -> int:
        return max(1, size + chooser.choice([-16, -8, -1, 1, 8, 16]))

    return problem.neighbour(near)


REFUSALS: tuple[type[Exception], ...] = (ValueError, TypeError, NotImplementedError, RuntimeError)
"""Exceptions with which a kernel may refuse sizes that it does not take; a refusal is not a wrong answer."""
