"""How far a candidate may err: the library's own error on the same inputs, and a second look where that is too little.

Once is too little to know the library's error where the result has few elements, and in float32 the library's way of
summing is not the only one at that precision. Both are looked into before an answer is called wrong.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from perfsuite.oracle.measures import Measures, grain, measure
from perfsuite.oracle.reference import reference
from perfsuite.problems.base import Inputs, Problem
from perfsuite.problems.tensors import tensors_in

if TYPE_CHECKING:
    import torch

# How often the library's error a candidate may err. The floor of one unit in the last place comes on top.
TIMES_THE_LIBRARY = 2.0
# A result with fewer elements is small: its error, or its own norm, may be tiny by chance.
SMALL = 4096
DRAWS = 24
# Draws for a larger result, and the FLOPs up to which they are made: the worst row of an attention can hang on one
# logit, and then its error is one random number, not an average over the row.
LARGE_DRAWS = 6
LARGE_FLOPS = {"cuda": 1e11, "cpu": 1e9}
# Error of the library at which its answer is another one and measures nothing.
FARTHEST_LIBRARY = 0.25
# Distributions of subnormal numbers: a library that takes them for zero is not wrong.
SUBNORMAL = ("tiny",)


class LibraryWrongError(RuntimeError):
    """The library's own answer is wrong on these inputs: twice its error would allow anything."""


def require_plausible(found: Measures, distribution: str) -> None:
    """LibraryWrongError where the library's answer is not the one that was asked for.

    torch 2.11's scaled_dot_product_attention gives such answers where head_dim is 136 and the operands begin 2 bytes
    past a multiple of 16: their distance from the float64 answer is 1.4 times its norm. Few elements may be that far
    off by chance, where they nearly cancel.
    """
    known = found.elements >= SMALL and distribution not in SUBNORMAL
    if known and found.library_frobenius > FARTHEST_LIBRARY:
        raise LibraryWrongError(
            f"the library's own answer is wrong on these inputs (relative error {found.library_frobenius:.2g} against "
            "FP64), so it is no measure of how far a right one may err; name another with correctness(against=...)"
        )


@dataclass(frozen=True)
class Limits:
    """The largest errors allowed, in the terms of Measures, and whose errors they come from."""

    frobenius: float
    row: float
    element: float
    whose: str = "the library's"

    def allow(self, found: Measures) -> bool:
        """Whether all three errors are within the limits; a NaN is not."""
        return found.frobenius <= self.frobenius and found.row <= self.row and found.element <= self.element


def limits(found: Measures) -> Limits:
    """The limits that the library's error on the same inputs sets."""
    return replace(_widest(found, [found]), whose="the library's")


def second_look(
    problem: Problem,
    inputs: Inputs,
    found: Measures,
    candidate: torch.Tensor,
    right: torch.Tensor,
    library: Callable[..., Any],
    *,
    place: int,
    rows: torch.Tensor | None,
    distribution: str,
) -> Limits:
    """Wider limits, where they are due: from more draws, and in float32 from plain sums.

    candidate, right: the result, number `place` of those that the problem returns, and the float64 one; of the given
    rows only where there are any.
    """
    import torch

    if found.elements < SMALL and rows is None:
        return _from_draws(problem, found, candidate, right, library, place, distribution)
    seen = [found]
    if candidate.dtype is torch.float32 and (plain := problem.in_order(inputs, right, rows)) is not None:
        sums, exact = plain
        seen.append(measure(sums, exact, sums))
    allowed = _widest(found, seen)
    if allowed.allow(found) or rows is not None or (problem.flops or 0.0) > LARGE_FLOPS[right.device.type]:
        return allowed
    generator = torch.Generator(right.device).manual_seed(0)
    for _ in range(LARGE_DRAWS):
        drawn = problem.inputs(generator, distribution=distribution)
        exact = list(tensors_in(reference(problem, drawn)))[place]
        answer = list(tensors_in(drawn.call(library)))[place]
        seen.append(measure(answer, exact, answer))
    return _widest(found, seen)


def _widest(found: Measures, seen: list[Measures]) -> Limits:
    """Limits from the largest errors of the library, and of whatever else `seen` has measured in its place."""
    return Limits(
        TIMES_THE_LIBRARY * max(one.library_frobenius for one in seen) + found.frobenius_floor,
        TIMES_THE_LIBRARY * max(one.library_row for one in seen) + found.row_floor,
        TIMES_THE_LIBRARY * max(one.library_element for one in seen) + found.element_floor,
        "the largest of the library's in more draws and of float32 sums in order",
    )


def _from_draws(
    problem: Problem,
    found: Measures,
    candidate: torch.Tensor,
    right: torch.Tensor,
    library: Callable[..., Any],
    place: int,
    distribution: str,
) -> Limits:
    """Limits from the library's largest absolute errors over several draws.

    A relative error is large wherever a result happens to be close to zero, for library and candidate alike but not in
    the same draw; the absolute one is not.
    """
    import torch

    generator = torch.Generator(right.device).manual_seed(0)
    errors, exacts = [], [right]
    for _ in range(DRAWS):
        drawn = problem.inputs(generator, distribution=distribution)
        exact = list(tensors_in(reference(problem, drawn)))[place]
        exacts.append(exact)
        errors.append(_difference(list(tensors_in(drawn.call(library)))[place], exact))
        plain = problem.in_order(drawn, exact) if candidate.dtype is torch.float32 else None
        if plain is not None:
            errors.append(_difference(*plain))
    eps, quantum = grain(candidate.dtype)
    sizes = [exact.nan_to_num(0.0, 0.0, 0.0).abs() for exact in exacts]
    scale = float(torch.stack([size.square().mean() for size in sizes]).mean().sqrt())
    rms = max(float(error.square().mean().sqrt()) for error in errors)
    peak = max(float(error.max()) for error in errors)
    own = float(sizes[0].square().mean().sqrt())
    mine = float(_difference(candidate, right).max())
    largest = max(float(size.max()) for size in sizes)
    rms_limit = TIMES_THE_LIBRARY * rms + max(eps * scale, quantum)
    peak_limit = TIMES_THE_LIBRARY * peak + max(eps * largest, quantum)
    return Limits(
        rms_limit / own if own else math.inf,
        math.inf,  # a row has as many elements as a small result has, or nearly: it is judged by the other two
        found.element * (peak_limit / mine) if mine else math.inf,
        "the largest of the library's in more draws and of float32 sums in order",
    )


def _difference(answer: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    """Magnitudes of the differences; 0 where either side is not finite."""
    return (answer.to(exact.dtype) - exact).abs().nan_to_num(0.0, 0.0, 0.0)
