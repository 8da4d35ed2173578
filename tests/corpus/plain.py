"""Repeats a MISSED or a WRONG by torch alone: times of single calls, errors against float64.

Nothing of perfsuite takes part, so that a verdict and its repetition cannot share a fault.
"""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves, tree_map_only

if TYPE_CHECKING:
    from .written import Given

CALLS = 60
"""Timed calls of each side, in turn."""


def repeated(given: Given, verdict: str, target: float | None) -> dict[str, Any]:
    """`confirmed` (None if plain torch cannot tell), and a sentence with the figures."""
    try:
        if verdict == "MISSED":
            mine, theirs = times(given)
            said = f"{mine * 1e6:.4g} us against {theirs * 1e6:.4g} us: {theirs / mine:.3f}"
            return {"confirmed": theirs / mine < (target or 1.0), "said": said}
        mine, theirs = errors(given)
    except Exception as error:  # the sentence says so
        return {"confirmed": None, "said": f"{type(error).__name__}: {error}"[:200]}
    return {"confirmed": mine > 2 * theirs, "said": f"relative error {mine:.3g}; the module's is {theirs:.3g}"}


def times(given: Given) -> tuple[float, float]:
    """Median seconds of a call of candidate and rival, on fresh copies of the arguments."""
    sides = (given.candidate, given.rival)
    found: tuple[list[float], list[float]] = ([], [])
    for round_ in range(CALLS + 5):
        for place in (0, 1) if round_ % 2 else (1, 0):
            seconds = one_call(sides[place], *arguments(given))
            if round_ >= 5:
                found[place].append(seconds)
    return statistics.median(found[0]), statistics.median(found[1])


def arguments(given: Given) -> tuple[Any, Any]:
    """Copies of args and kwargs."""
    args = given.args(torch.Generator().manual_seed(0), lambda size: size) if callable(given.args) else given.args
    return tree_map_only(torch.Tensor, lambda one: one.detach().clone(), (tuple(args), given.kwargs))


def one_call(function: Callable[..., Any], args: Any, kwargs: Any) -> float:
    """Seconds of one call; on a card by events."""
    with torch.no_grad():
        if not any(one.is_cuda for one in tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor)):
            start = time.perf_counter()
            function(*args, **kwargs)
            return time.perf_counter() - start
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(1_000_000)  # the host is ahead of the card when the call begins
        begin.record()
        function(*args, **kwargs)
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / 1e3


def errors(given: Given) -> tuple[float, float]:
    """Largest relative errors of candidate and rival against the rival in float64."""
    args, kwargs = arguments(given)
    wide = copy.deepcopy(given.rival).double() if isinstance(given.rival, nn.Module) else given.rival
    with torch.no_grad():
        right = values(wide(*widened(args), **widened(kwargs)))
        mine, theirs = (values(side(*arguments(given)[0], **kwargs)) for side in (given.candidate, given.rival))
    return (
        max(map(error, mine, right), default=0.0),
        max(map(error, theirs, right), default=0.0),
    )


def widened(nest: Any) -> Any:
    return tree_map_only(torch.Tensor, lambda one: one.double() if one.is_floating_point() else one, nest)


def values(nest: Any) -> list[torch.Tensor]:
    return [one.detach().double() for one in tree_leaves(nest) if isinstance(one, torch.Tensor)]


def error(one: torch.Tensor, right: torch.Tensor) -> float:
    return float((one - right).norm() / right.norm().clamp(min=1e-300))
