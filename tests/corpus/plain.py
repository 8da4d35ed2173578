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
LEAST = 2.0**-24
"""A smaller error of the rival counts as this: half a unit in the last place of a float32."""
Change = Callable[[torch.Tensor], torch.Tensor]
_drawn: dict[tuple[Any, ...], torch.Tensor] = {}


def repeated(given: Given, verdict: str, target: float | None) -> dict[str, Any]:
    """`confirmed` (None if plain torch cannot tell), and a sentence with the figures."""
    try:
        if verdict == "MISSED":
            mine, theirs = times(given)
            said = f"{mine * 1e6:.4g} us against {theirs * 1e6:.4g} us: {theirs / mine:.3f}"
            return {"confirmed": theirs / mine < (target or 1.0), "said": said}
        found = {name: errors(given, change) for name, change in INPUTS.items()}
    except Exception as error:  # the sentence says so
        return {"confirmed": None, "said": f"{type(error).__name__}: {error}"[:200]}
    name = max(found, key=lambda one: found[one][0] / max(found[one][1], LEAST))
    mine, theirs = found[name]
    said = f"on {name}: relative error {mine:.3g}; the module's is {theirs:.3g}"
    return {"confirmed": mine > 2 * max(theirs, LEAST), "said": said}


def times(given: Given) -> tuple[float, float]:
    """Median seconds of a call of candidate and rival, on fresh copies of the arguments."""
    sides = (given.candidate, given.rival)
    found: tuple[list[float], list[float]] = ([], [])
    for round_ in range(CALLS + 5):
        for place in (0, 1) if round_ % 2 else (1, 0):
            seconds = one_call(given, sides[place])
            if round_ >= 5:
                found[place].append(seconds)
    return statistics.median(found[0]), statistics.median(found[1])


def arguments(given: Given) -> tuple[Any, Any]:
    """Copies of args and kwargs, which require gradients where these do."""
    args = given.args(torch.Generator().manual_seed(0), lambda size: size) if callable(given.args) else given.args
    return tree_map_only(
        torch.Tensor,
        lambda one: one.detach().clone().requires_grad_(given.backward and one.requires_grad),
        (tuple(args), given.kwargs),
    )


def called(given: Given, function: Callable[..., Any], args: Any, kwargs: Any) -> list[torch.Tensor]:
    """The results of a call; for a backward pass, also the gradients of the arguments that require one."""
    if not given.backward:
        with torch.no_grad():
            return values(function(*args, **kwargs))
    results = [one for one in tree_leaves(function(*args, **kwargs)) if isinstance(one, torch.Tensor)]
    given_back = [one for one in results if one.requires_grad]
    leaves = [one for one in tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor) and one.requires_grad]
    gradients = torch.autograd.grad(given_back, leaves, list(map(drawn, given_back)), allow_unused=True)
    return values([*results, *(one for one in gradients if one is not None)])


def drawn(result: torch.Tensor) -> torch.Tensor:
    """A gradient of the result; for results of one shape it is the same, and is drawn once."""
    key = (tuple(result.shape), result.dtype, str(result.device))
    if key not in _drawn:
        generator = torch.Generator().manual_seed(1)
        _drawn[key] = torch.randn(result.shape, generator=generator, dtype=torch.float64).to(result)
    return _drawn[key]


def one_call(given: Given, function: Callable[..., Any]) -> float:
    """Seconds of one call, of both passes if the backward is judged; on a card by events."""
    args, kwargs = arguments(given)
    if not any(one.is_cuda for one in tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor)):
        start = time.perf_counter()
        called(given, function, args, kwargs)
        return time.perf_counter() - start
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(1_000_000)  # the host is ahead of the card when the call begins
    begin.record()
    called(given, function, args, kwargs)
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / 1e3


def errors(given: Given, change: Change) -> tuple[float, float]:
    """Largest relative errors of candidate and rival against the rival in float64, on changed arguments."""

    def sized(nest: Any, kind: Change) -> Any:
        def changed(one: torch.Tensor) -> torch.Tensor:
            if not one.is_floating_point():
                return one
            return kind(one.detach()).requires_grad_(one.requires_grad)

        return tree_map_only(torch.Tensor, changed, nest)

    wide = copy.deepcopy(given.rival).double() if isinstance(given.rival, nn.Module) else given.rival
    right = called(given, wide, *sized(arguments(given), lambda one: change(one).double()))
    mine, theirs = (called(given, side, *sized(arguments(given), change)) for side in (given.candidate, given.rival))
    return max(map(error, mine, right), default=0.0), max(map(error, theirs, right), default=0.0)


def constant_rows(x: torch.Tensor) -> torch.Tensor:
    return x[..., :1].expand_as(x).clone() if x.dim() > 1 else x


def dominant(x: torch.Tensor) -> torch.Tensor:
    x = x.clone()
    x[..., :1] *= 30
    return x


def values(nest: Any) -> list[torch.Tensor]:
    return [one.detach().double() for one in tree_leaves(nest) if isinstance(one, torch.Tensor)]


def error(one: torch.Tensor, right: torch.Tensor) -> float:
    return float((one - right).norm() / right.norm().clamp(min=1e-300))


INPUTS: dict[str, Change] = {
    "the arguments": lambda x: x,
    "constant rows": constant_rows,
    "dominant first columns": dominant,
    "tiny values": lambda x: x * 2.0**-10,
}
