"""Sets the tolerance: the library's own error on the same inputs, and wider limits after a second look.

One draw does not show the library's error if the result has few elements. In float32 the library's order of summing is
not the only one at that precision. The second look covers both before an answer is called wrong.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perfsuite.oracle.form import values_in
from perfsuite.oracle.measures import LEAST_UNITS, Measures, grain, least_error, measure, units_of_a_norm
from perfsuite.problems.base import Inputs, Problem

if TYPE_CHECKING:
    import torch

TIMES_THE_LIBRARY = 2.0
"""A candidate may err this many times as much as the library, plus the rounding of its result."""
SMALL = 4096
"""A result with fewer elements is small: its error, or its own norm, may be tiny by chance."""
DRAWS = 24
LARGE_DRAWS = 6
LARGE_FLOPS = {"cuda": 1e11, "cpu": 1e9}
"""FLOPs up to which a larger result gets LARGE_DRAWS. The worst row of an attention can hang on one logit, and then its
error is one random number, not an average over the row."""
FARTHEST_LIBRARY = 0.25
"""Relative error of the library from which on its answer is another one and measures nothing."""
ALL = "the largest of the library's in more draws and of float32 sums in order"
SUBNORMAL = ("tiny",)
"""Distributions of subnormal numbers: a library that takes them for zero is not wrong."""


class LibraryWrongError(RuntimeError):
    """The library's own answer is wrong on these inputs: twice its error would allow anything."""


def require_plausible(found: Measures, distribution: str) -> None:
    """Raise LibraryWrongError if the library's answer is not the one that was asked for.

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
    whose: str

    def allow(self, found: Measures) -> bool:
        """True if all three errors are within the limits; a NaN is not."""
        return found.frobenius <= self.frobenius and found.row <= self.row and found.element <= self.element


def limits(found: Measures) -> Limits:
    """The limits that the library's error on the same inputs sets."""
    return widest(found, [found], "the library's")


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
    """Limits from more draws, and in float32 from plain sums; they may be wider.

    candidate, right: result number `place` of those that the problem returns, and the float64 one; with `rows`, only
    those rows of both.
    """
    import torch

    if found.elements < SMALL and rows is None:
        return _from_draws(problem, found, candidate, right, library, place, distribution)
    seen = [found]
    if candidate.dtype is torch.float32 and (plain := problem.in_order(inputs, right, rows)) is not None:
        sums, exact = plain
        seen.append(measure(sums, exact, sums))
    allowed = widest(found, seen)
    if allowed.allow(found) or rows is not None or (problem.flops or 0.0) > LARGE_FLOPS[right.device.type]:
        return allowed
    for _, exact, answer in draws(LARGE_DRAWS, problem, library, right.device, place, distribution):
        seen.append(measure(answer, exact, answer))
    return widest(found, seen)


def draws(
    count: int, problem: Problem, library: Callable[..., Any], device: torch.device, place: int, distribution: str
) -> Iterator[tuple[Inputs, torch.Tensor, torch.Tensor]]:
    """(inputs, float64 answer, library's answer) of result number `place`, on further inputs."""
    import torch

    generator = torch.Generator(device).manual_seed(0)
    for _ in range(count):
        drawn = problem.inputs(generator, distribution=distribution)
        exact, answer = (values_in(nest)[place][1] for nest in (problem.answer(drawn), drawn.call(library)))
        yield drawn, exact, answer


def widest(found: Measures, seen: list[Measures], whose: str = ALL) -> Limits:
    """Limits from the largest errors that `seen` measured, of the library or in its place."""
    # Of subnormal numbers the floor is their spacing, and several of these are another answer.
    normal = LEAST_UNITS * found.row_floor <= 2.0 * found.row_least
    whole, row, element = (TIMES_THE_LIBRARY * max(errors) for errors in zip(*map(_library, seen), strict=True))
    return Limits(
        max(whole + found.frobenius_floor, found.frobenius_least),
        max(row + found.row_floor, found.row_least),
        max(element + found.element_floor, LEAST_UNITS * found.element_floor if normal else 0.0),
        whose,
    )


def _library(seen: Measures) -> tuple[float, float, float]:
    return seen.library_frobenius, seen.library_row, seen.library_element


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

    A relative error is large wherever a result happens to be close to zero, and library and candidate meet that in
    different draws. The absolute error is not large there.
    """
    import torch

    errors, exacts = [], [right]
    for drawn, exact, answer in draws(DRAWS, problem, library, right.device, place, distribution):
        exacts.append(exact)
        errors.append(_difference(answer, exact))
        plain = problem.in_order(drawn, exact) if candidate.dtype is torch.float32 else None
        if plain is not None:
            errors.append(_difference(*plain))
    eps, quantum = grain(candidate.dtype)
    sizes = [exact.nan_to_num(0.0, 0.0, 0.0).abs().double() for exact in exacts]
    scale = float(torch.stack([size.square().mean() for size in sizes]).mean().sqrt())
    rms = max(float(error.square().mean().sqrt()) for error in errors)
    peak = max(float(error.max()) for error in errors)
    own = float(sizes[0].square().mean().sqrt())
    mine = float(_difference(candidate, right).max())
    largest = max(float(size.max()) for size in sizes)
    first = sizes[0]
    units = float(units_of_a_norm(candidate.dtype, first.max(), first.square().sum(), first.square().mean().sqrt()))
    least = least_error(candidate.dtype, rounded=peak > 0)
    rms_limit = max(TIMES_THE_LIBRARY * rms + max(eps * units * scale, quantum), least * scale)
    peak_limit = max(TIMES_THE_LIBRARY * peak + max(eps * largest, quantum), least * largest)
    return Limits(
        rms_limit / own if own else math.inf,
        math.inf,  # a row has as many elements as a small result has, or nearly: it is judged by the other two
        found.element * (peak_limit / mine) if mine else math.inf,
        ALL,
    )


def _difference(answer: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    """Magnitudes of the differences; 0 where either side is not finite."""
    return (answer.to(exact.dtype) - exact).abs().double().nan_to_num(0.0, 0.0, 0.0)
