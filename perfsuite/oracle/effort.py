"""Bounds the cost of judging: the float64 answer of a large case takes many times as long as the case itself."""

from __future__ import annotations

import secrets
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from perfsuite.problems.base import Problem
from perfsuite.problems.differentiated import Differentiated

if TYPE_CHECKING:
    import torch

DEAR_FLOPS = 1e11
DEAR_BYTES = 5e8
"""Beyond either, one timed call is judged instead of TIMED_CALLS."""
TIMED_CALLS = 3
"""Calls of the timed region whose outputs are judged, every element of them."""
ADVERSARIAL_FLOPS = {"cuda": 2e11, "cpu": 1e9}
"""FLOPs of the largest case that is examined on adversarial values as well."""
MOST_FLOPS = {"cuda": DEAR_FLOPS, "cpu": 4e10}
"""FLOPs beyond which only some rows are computed; on a CPU about a second of two cores' float64."""
FEWEST_ROWS = 16


def dear(problem: Problem) -> bool:
    """True if the right answer takes long on a GPU; False for a problem of unknown FLOPs and bytes."""
    return (problem.flops or 0.0) > DEAR_FLOPS or (problem.bytes or 0.0) > DEAR_BYTES


def timed_calls_judged(problem: Problem) -> int:
    """The number of timed calls of a case that are judged."""
    return 1 if dear(problem) else TIMED_CALLS


def on_adversarial_values(problem: Problem, device: str) -> bool:
    """True if a case is small enough to be examined on hard distributions too."""
    if (problem.flops or 0.0) > ADVERSARIAL_FLOPS[device]:
        return False
    return device != "cuda" or (problem.bytes or 0.0) <= DEAR_BYTES


def rows_to_check(problem: Problem, device: str, *, whole: bool = False) -> torch.Tensor | None:
    """The indices of the rows of the result that are computed and compared; None for all rows.

    Beyond MOST_FLOPS, as many rows as that many FLOPs allow are drawn afresh at every call, so that no candidate can
    know them. The first and the last are always among them. whole: all rows on a GPU, however long that takes.
    """
    import torch

    most = MOST_FLOPS[device]
    total, flops = problem.row_count, problem.flops or 0.0
    if (whole and device != "cpu") or total is None or flops <= most:
        return None
    count = max(FEWEST_ROWS, int(total * most / flops))
    if count >= total:
        return None
    secret = torch.Generator().manual_seed(secrets.randbits(63))
    chosen = torch.randperm(total, generator=secret)[: count - 2]
    return torch.cat([chosen, torch.tensor([0, total - 1])]).unique()


class Examined:
    """Candidates that were found right before they were timed, by problem: once in a process is enough.

    Functions count by identity and are not kept alive. A function together with its backward counts as the function,
    since each call of `perf` makes that anew. A function without weak references is examined every time. So is a
    problem without a hash, and one that equals only itself, as custom ones do: it would keep the user's functions.
    """

    def __init__(self) -> None:
        self._found: dict[int, tuple[weakref.ref[Callable[..., Any]], set[object]]] = {}

    def note(self, candidate: Callable[..., Any], problem: Problem, terms: object) -> None:
        """Remember the candidate as right on that problem. terms: what else the examination depended on."""
        if not _recognisable(problem):
            return
        function, plan = _parts(candidate)
        if not self._of(function):
            try:
                self._found[id(function)] = weakref.ref(function), set()
            except TypeError:
                return
        self._found[id(function)][1].add((problem, plan, terms))

    def has(self, candidate: Callable[..., Any], problem: Problem, terms: object) -> bool:
        """True if the candidate was found right on an equal problem, on equal terms."""
        function, plan = _parts(candidate)
        return _recognisable(problem) and (problem, plan, terms) in self._of(function)

    def _of(self, function: Callable[..., Any]) -> set[object]:
        reference, found = self._found.get(id(function), (None, set()))
        return found if reference is not None and reference() is function else set()


def _parts(candidate: Callable[..., Any]) -> tuple[Callable[..., Any], object]:
    """The user's function, and what of its backward is computed."""
    if type(candidate) is Differentiated:
        return candidate.__wrapped__, candidate.plan
    return candidate, None


def _recognisable(problem: Problem) -> bool:
    """True if the problem has a hash and equals others of the same parameters."""
    try:
        hash(problem)
    except TypeError:  # a field is a list or a dictionary
        return False
    return type(problem).__eq__ is not object.__eq__
