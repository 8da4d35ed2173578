"""How much of a case is judged: all of it in the calls that are timed, less around them where the right answer is dear.

The float64 answer of a large case takes many times as long as the case itself.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from perfsuite.problems.base import Problem

DEAR_FLOPS = 1e11
DEAR_BYTES = 5e8
"""Beyond either, one timed call is judged instead of TIMED_CALLS."""
TIMED_CALLS = 3
"""Calls of the timed region whose outputs are judged, every element of them."""
# FLOPs of the largest case that is examined on adversarial values as well.
ADVERSARIAL_FLOPS = {"cuda": 2e11, "cpu": 1e9}


def dear(problem: Problem) -> bool:
    """Whether the right answer takes long on a GPU; not known, and so False, of a custom problem that does not say."""
    return (problem.flops or 0.0) > DEAR_FLOPS or (problem.bytes or 0.0) > DEAR_BYTES


def timed_calls_judged(problem: Problem) -> int:
    """How many timed calls of a case are judged."""
    return 1 if dear(problem) else TIMED_CALLS


def on_adversarial_values(problem: Problem, device: str) -> bool:
    """True if a case is small enough to be examined on hard distributions too."""
    if (problem.flops or 0.0) > ADVERSARIAL_FLOPS[device]:
        return False
    return device != "cuda" or (problem.bytes or 0.0) <= DEAR_BYTES


class Examined:
    """Which candidates were found right before they were timed, at which problems: once in a process is enough.

    Functions count by identity and are not kept alive. A function without weak references is examined every time, and
    so is a problem that equals only itself, as custom ones do: it would keep the user's functions alive.
    """

    def __init__(self) -> None:
        self._found: dict[int, tuple[weakref.ref[Callable[..., Any]], set[object]]] = {}

    def note(self, candidate: Callable[..., Any], problem: Problem, distribution: str) -> None:
        """Keep that `candidate` was found right at `problem`, on inputs from `distribution`."""
        if type(problem).__eq__ is object.__eq__:
            return
        if not self._of(candidate):
            try:
                self._found[id(candidate)] = weakref.ref(candidate), set()
            except TypeError:
                return
        self._found[id(candidate)][1].add((problem, distribution))

    def has(self, candidate: Callable[..., Any], problem: Problem, distribution: str) -> bool:
        """Whether it was noted."""
        return (problem, distribution) in self._of(candidate)

    def _of(self, candidate: Callable[..., Any]) -> set[object]:
        reference, found = self._found.get(id(candidate), (None, set()))
        return found if reference is not None and reference() is candidate else set()
