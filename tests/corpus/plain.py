"""Repeats a MISSED or a WRONG by torch alone: times of single calls, errors against float64.

Nothing of perfsuite takes part, so that a verdict and its repetition cannot share a fault.
"""

from __future__ import annotations

import copy
import math
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
REPEATS = 16
"""Calls of each side that look for other bits, or take a mean."""
SIZES_APART = 1e-3
LEAST = 2.0**-24
"""A smaller error of the rival counts as this: half a unit in the last place of a float32."""
Change = Callable[[torch.Tensor], torch.Tensor]
_drawn: dict[tuple[Any, ...], torch.Tensor] = {}


def repeated(given: Given, line: dict[str, Any], target: float | None) -> dict[str, Any]:
    """`confirmed` (None if plain torch cannot tell), and a sentence with the figures.

    line: the verdict, its reason and the clock.
    """
    repeats = {"not-deterministic": other_bits, "inputs-changed": written}
    try:
        if line["verdict"] == "MISSED":
            mine, theirs = times(given, waits=line.get("clock") == "events")
            said = f"{mine * 1e6:.4g} us against {theirs * 1e6:.4g} us: {theirs / mine:.3f}"
            return {"confirmed": theirs / mine < (target or 1.0), "said": said}
        if (repeat := repeats.get(line.get("reason", ""))) is not None:
            return dict(zip(("confirmed", "said"), repeat(given), strict=True))
        if draws_numbers(given.rival, given):
            return dict(zip(("confirmed", "said"), sizes(given), strict=True))
        found = {name: errors(given, change) for name, change in INPUTS.items()}
    except Exception as error:  # the sentence says so
        return {"confirmed": None, "said": f"{type(error).__name__}: {error}"[:200]}
    known = {name: both for name, both in found.items() if all(map(math.isfinite, both))}
    if not known:
        return {"confirmed": None, "said": "no result is finite"}
    name = max(known, key=lambda one: known[one][0] / max(known[one][1], LEAST))
    mine, theirs = known[name]
    said = f"on {name}: relative error {mine:.3g}; the module's is {theirs:.3g}"
    return {"confirmed": mine > 2 * max(theirs, LEAST), "said": said}


def other_bits(given: Given) -> tuple[bool, str]:
    """(True if equal arguments give the candidate's results other bits, and the rival's the same; the figures)."""
    counts = []
    for side in (given.candidate, given.rival):
        first, *more = (called(given, side, *arguments(given)) for _ in range(REPEATS))
        unequal = (sum(int((one != other).sum()) for one, other in zip(first, again, strict=True)) for again in more)
        counts.append(max(unequal))
    said = f"in {REPEATS} calls up to {counts[0]} elements got other bits; of the module's {counts[1]}"
    return counts[0] > 0 and counts[1] == 0, said


def written(given: Given) -> tuple[bool, str]:
    """(True if the candidate changes arguments, or gradients that it is given, which the rival does not; which)."""
    changed = []
    for side in (given.candidate, given.rival):
        args, kwargs = arguments(given)
        _drawn.clear()
        if given.backward:
            for one in tensors(given.rival(*args, **kwargs)):
                drawn(one)
        seen = [*tensors((args, kwargs)), *_drawn.values()]
        before = [one.detach().clone() for one in seen]
        called(given, side, args, kwargs)
        changed.append([place for place, pair in enumerate(zip(seen, before, strict=True)) if not torch.equal(*pair)])
    _drawn.clear()
    said = f"the candidate writes tensors {changed[0]} of its arguments and gradients; the module {changed[1]}"
    return bool(set(changed[0]) - set(changed[1])), said


def draws_numbers(function: Callable[..., Any], given: Given) -> bool:
    """True if other seeds of torch give other results by far more than rounding."""
    torch.manual_seed(1)
    one = called(given, function, *arguments(given))
    torch.manual_seed(2)
    return max(map(error, one, called(given, function, *arguments(given))), default=0.0) > 1e-3


def sizes(given: Given) -> tuple[bool, str]:
    """(True if the candidate's results are of another size along the mean of the rival's; the figures)."""
    means = []
    for seed, side in enumerate((given.rival, given.rival, given.candidate)):
        torch.manual_seed(seed)
        total: list[torch.Tensor] = []
        for _ in range(REPEATS):
            got = called(given, side, *arguments(given))
            total = [sum_ + one for sum_, one in zip(total, got, strict=True)] if total else got
        means.append(torch.cat([one.flatten() for one in total]))
    along = means[0].square().sum()
    again, mine = (float((one * means[0]).sum() / along) for one in means[1:])
    # The first mean's own noise is in its square, and in neither product.
    said = f"along the module's mean of {REPEATS} results its size is {mine / again:.5f} times that of the module's"
    return abs(mine / again - 1) > SIZES_APART, said


def times(given: Given, *, waits: bool = False) -> tuple[float, float]:
    """Median seconds of a call of candidate and rival, on fresh copies of the arguments.

    waits: the call waits for the card, so its time is that of the host.
    """
    sides = (given.candidate, given.rival)
    found: tuple[list[float], list[float]] = ([], [])
    for round_ in range(CALLS + 5):
        for place in (0, 1) if round_ % 2 else (1, 0):
            seconds = one_call(given, sides[place], waits=waits)
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


def one_call(given: Given, function: Callable[..., Any], *, waits: bool = False) -> float:
    """Seconds of one call, of both passes if the backward is judged; on a card by events, unless the call waits."""
    args, kwargs = arguments(given)
    on_card = any(one.is_cuda for one in tensors((args, kwargs)))
    if waits or not on_card:
        if on_card:
            torch.cuda.synchronize()
        start = time.perf_counter()
        called(given, function, args, kwargs)
        if on_card:
            torch.cuda.synchronize()
        return time.perf_counter() - start
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(1_000_000)  # the host is ahead of the card when the call begins
    begin.record()
    called(given, function, args, kwargs)
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / 1e3


def errors(given: Given, change: Change) -> tuple[float, float]:
    """Relative errors of candidate and rival against the rival in float64, on changed arguments.

    They are of the result or gradient where the candidate's is largest beside the rival's: another one's size must not
    hide it. Where the right values are all zero, no error is relative.
    """

    def sized(nest: Any, kind: Change) -> Any:
        def changed(one: torch.Tensor) -> torch.Tensor:
            if not one.is_floating_point():
                return one
            return kind(one.detach()).requires_grad_(one.requires_grad)

        return tree_map_only(torch.Tensor, changed, nest)

    wide = copy.deepcopy(given.rival).double() if isinstance(given.rival, nn.Module) else given.rival
    right = called(given, wide, *sized(arguments(given), lambda one: change(one).double()))
    mine, theirs = (called(given, side, *sized(arguments(given), change)) for side in (given.candidate, given.rival))
    pairs = [(error(m, r), error(t, r)) for m, t, r in zip(mine, theirs, right, strict=True) if r.any()]
    return max(pairs, key=lambda both: both[0] / max(both[1], LEAST), default=(0.0, 0.0))


def constant_rows(x: torch.Tensor) -> torch.Tensor:
    return x[..., :1].expand_as(x).clone() if x.dim() > 1 else x


def dominant(x: torch.Tensor) -> torch.Tensor:
    x = x.clone()
    if x.dim():
        x[..., :1] *= 30
    return x


def other_signs(seed: int) -> Change:
    """Each number with a sign drawn from `seed`: another draw of numbers that are as often positive as negative."""

    def changed(x: torch.Tensor) -> torch.Tensor:
        signs = torch.randint(2, x.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.int8)
        return x * (2 * signs - 1).to(x)

    return changed


def tensors(nest: Any) -> list[torch.Tensor]:
    return [one for one in tree_leaves(nest) if isinstance(one, torch.Tensor)]


def values(nest: Any) -> list[torch.Tensor]:
    return [one.detach().double() for one in tree_leaves(nest) if isinstance(one, torch.Tensor)]


def error(one: torch.Tensor, right: torch.Tensor) -> float:
    return float((one - right).norm() / right.norm().clamp(min=1e-300))


INPUTS: dict[str, Change] = {
    "the arguments": lambda x: x,
    "constant rows": constant_rows,
    "dominant first columns": dominant,
    "tiny values": lambda x: x * 2.0**-10,
    **{f"the arguments with other signs ({seed})": other_signs(seed) for seed in range(4)},
}
