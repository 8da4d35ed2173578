"""Judges without a float64 answer: the tolerance is how far the rival's result moves when its inputs barely do.

A kernel in Triton or C++ computes in the precision it was written for. Its own result then stands for the right answer.
An honest candidate differs from it by about as much as if every input had been rounded once more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from perfsuite.oracle.form import values_in
from perfsuite.oracle.judgement import Judgement
from perfsuite.oracle.measures import Measures, measure
from perfsuite.oracle.yardstick import FARTHEST_LIBRARY, Limits, widest
from perfsuite.outcome import Reason
from perfsuite.problems.base import Inputs
from perfsuite.problems.float64 import nudged
from perfsuite.problems.tensors import map_tensors, tensors_in

if TYPE_CHECKING:
    import torch

MOVES = 4
"""Times that the inputs are moved."""
ROUNDINGS = 2.0
"""Roundings of the result that count as the rival's own error at least: it may hardly depend on its inputs."""
WHOSE = "the change of the rival's result when its inputs change by one unit in the last place"
CLEARLY_ANOTHER = 100.0
"""An answer this many times beyond the limit, and as far off as FARTHEST_LIBRARY, is wrong whatever was rounded."""


def stand_in(exact: torch.Tensor, rivals: torch.Tensor) -> torch.Tensor:
    """The right answer if some of it was not computed in float64: the rival's own where both are far apart.

    They are if code that torch does not see wrote to memory that has a twin.
    """
    if measure(rivals, exact, rivals).library_frobenius <= FARTHEST_LIBRARY:
        return exact
    return rivals.to(exact.dtype)


def results_moved(library: Callable[..., Any], inputs: Inputs) -> list[list[torch.Tensor]]:
    """The tensors of the library's results on inputs that were moved by one unit in the last place, several times."""
    found = []
    for moved in moved_inputs(inputs, MOVES):
        result = moved.call(library)
        found.append([value for _, value in values_in(map_tensors(result, lambda tensor: tensor.detach().clone()))])
    return found


def moved_inputs(inputs: Inputs, count: int) -> Iterator[Inputs]:
    """Copies of the inputs, each moved by one unit in the last place in its own way."""
    import torch

    device = next((tensor.device for tensor in tensors_in(inputs)), torch.device("cpu"))
    generator = torch.Generator(device).manual_seed(0)
    for _ in range(count):
        yield nudged(inputs, generator)


def moved_limits(found: Measures, rivals: torch.Tensor, moved: list[torch.Tensor]) -> Limits:
    """Limits from the distance of the moved results to the rival's own; a result of another shape is left out."""
    from perfsuite.problems.float64.twins import wide

    base = rivals.to(wide(rivals.dtype))
    alike = [one for one in moved if one.shape == rivals.shape]
    least = replace(
        found,
        library_frobenius=ROUNDINGS * found.frobenius_floor,
        library_row=ROUNDINGS * found.row_floor,
        library_element=ROUNDINGS * found.element_floor,
    )
    return widest(found, [found, least, *(measure(one, base, one) for one in alike)], WHOSE)


def soften(judgement: Judgement, allowed: Limits, gaps: tuple[str, ...]) -> Judgement:
    """The judgement of a candidate that fails such a limit: it could not be told, unless it is clearly wrong."""
    known = f"float64 cannot be had ({', '.join(gaps[:3])})"
    if judgement.ok or judgement.reason is not Reason.INACCURATE:
        return replace(judgement, sentence=f"{judgement.sentence}; {known}")
    error, limit = judgement.candidate_error or 0.0, max(allowed.frobenius, 1e-300)
    if error > max(FARTHEST_LIBRARY, CLEARLY_ANOTHER * limit):
        return replace(judgement, sentence=f"{judgement.sentence}; {known}, but no rounding explains this")
    said = f"{judgement.sentence}; {known}, so which of both is right was not seen: pass reference="
    return replace(judgement, reason=Reason.REFERENCE_IMPRECISE, sentence=said)
