"""Requires results whose sizes do not depend on data: the room for them is made before the calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from perfsuite.outcome import UnjudgeableError
from perfsuite.problems.base import Inputs
from perfsuite.problems.tensors import tensors_in

TRIED = 4
"""Sets of inputs on which the sizes are compared: those of two are sometimes equal by chance."""


def result_of_one_size(sets: Sequence[Inputs], rival: Callable[..., Any]) -> Any:
    """The rival's result on the first set; UnjudgeableError if its sizes are others on another set."""
    first = sets[0].call(rival)
    shapes = [one.shape for one in tensors_in(first)]
    for number in range(1, TRIED):
        other = sets[number * (len(sets) - 1) // (TRIED - 1)].call(rival)
        if [one.shape for one in tensors_in(other)] != shapes:
            raise UnjudgeableError("the result's size depends on data; run without --perf-isolate")
    return first
