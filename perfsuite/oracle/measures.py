"""Measures the error of an answer over the whole tensor, in its worst row and at its worst element.

All three are relative to the reference. Rows are those of the last axis. Short neighbouring rows are taken together:
the norm of a handful of elements can be small by chance and would make any error look large.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    _Sums = tuple[torch.Tensor, torch.Tensor, torch.Tensor]

ROW_ELEMENTS = 64
"""Least elements of a row, after neighbours were taken together."""
ALIKE = 1.01
"""Largest magnitude over root mean square of values that count as equal."""
BLOCK_ELEMENTS = {"cuda": 1 << 26, "cpu": 1 << 20}
"""Elements that are compared at a time."""
SMALL_BLOCK = 1 << 16
"""Elements up to which candidate, library and right answer are compared in one tensor."""
LEAST_UNITS = 8.0
"""Units in the last place that a row of a float32 answer may be off at least, if the library rounds at all.

A library may be exact to half a unit while an honest kernel takes another way in the same precision. The longest way
is through a logarithm, as exp(log_softmax(x)): a number of 8 to 16 that is off by one unit moves its exp by eight, and
so the whole row. Over many rows the root mean square of that is 1/sqrt(3). No cheaper format is that exact: the
nearest, two numbers of bfloat16 in place of one, is off by 20 units.
"""


@dataclass(frozen=True)
class Measures:
    """Errors of a candidate and of the library, from one pass over both.

    `frobenius`: norm of the difference over norm of the reference. `row`: the same of the worst row. `element`: the
    largest difference over its row's root mean square. The element's floor is one unit in the last place of the
    output's dtype at the output's scale, in the same relative terms. The floors of the two norms are what rounding does
    to a norm (`units_of_a_norm`). All are taken where the candidate does worst.
    """

    frobenius: float
    row: float
    element: float
    library_frobenius: float
    library_row: float
    library_element: float
    frobenius_floor: float
    row_floor: float
    element_floor: float
    worst_row: int
    stray: int
    """Elements whose NaN or infinity is neither the reference's, rounded to the dtype, nor the library's."""
    poisoned: int
    """Elements that still hold what the memory was filled with before the call."""
    elements: int
    frobenius_least: float = 0.0
    """The relative error of the whole that is allowed whatever the library's is: of float32 only, by LEAST_UNITS."""
    row_least: float = 0.0
    """The same of a row."""


def measure(
    candidate: torch.Tensor, right: torch.Tensor, library: torch.Tensor, *, poison: int | None = None
) -> Measures:
    """Compare `candidate` and `library` with `right` (float64), all of one shape and on one device.

    poison: the bit pattern of a 16-bit half that counts as never written.
    """
    import torch

    if candidate.is_complex():
        candidate, right, library = (torch.view_as_real(t.resolve_conj()) for t in (candidate, right, library))
    if candidate.numel() == 0:
        return Measures(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, worst_row=0, stray=0, poisoned=0, elements=0)
    width = candidate.shape[-1] if candidate.dim() else 1
    mine, exact, theirs = (t.detach().reshape(-1, width) for t in (candidate, right, library))
    step = max(1, BLOCK_ELEMENTS[candidate.device.type] // width)
    blocks = [(mine, exact, theirs)]
    if len(mine) > step:
        blocks = list(zip(mine.split(step), exact.split(step), theirs.split(step), strict=True))
    found = _compared(_joined([_finite_block(*three) for three in blocks]), candidate)
    if found is None:
        found = _compared(_joined([_block(*three, poison=poison) for three in blocks]), candidate, thorough=True)
    assert found is not None
    return found


def _joined(blocks: list[_Sums]) -> _Sums:
    """Sums of squares and largest magnitudes of all rows, and counts of all elements."""
    import torch

    if len(blocks) == 1:
        return blocks[0]
    squares, peaks, counts = zip(*blocks, strict=True)
    return torch.cat(squares, 1), torch.cat(peaks, 1), torch.stack(counts).sum(0)


def _compared(joined: _Sums, candidate: torch.Tensor, *, thorough: bool = False) -> Measures | None:
    """The measures from sums over rows; None where these say nothing, because not every element was finite."""
    import torch

    row_squares, row_peaks, counts = joined
    eps, quantum = grain(candidate.dtype)
    width = candidate.shape[-1] if candidate.dim() else 1
    together = taken_together(width)
    squares, peaks = row_squares, row_peaks
    if together > 1:
        squares, peaks = grouped(row_squares, together).sum(-1), grouped(row_peaks, together).amax(-1)
    members: float | torch.Tensor = float(width * together)
    if missing := -row_squares.shape[1] % together:  # the last group is smaller
        members = torch.full_like(squares[0], width * together)
        members[-1] -= width * missing

    # Kernels are what takes time here, not rows: all that is divided by a row's root mean square is so at once.
    whole, largest = squares.sum(1), peaks.amax(1)
    roots, most, scale = (squares / members).sqrt(), peaks[2], (whole[2] / candidate.numel()).sqrt()
    # A row that should be all zeros is judged at the scale of the whole.
    rms = torch.where((rms := roots[2]) > 0, rms, scale)
    units = units_of_a_norm(candidate.dtype, most, squares[2], rms)
    floors = (torch.stack([rms * units, most]) * eps).clamp(min=quantum)
    # (row, element), (candidate, library, floor), rows
    above = torch.cat([torch.stack([roots[:2], peaks[:2]]), floors.unsqueeze(1)], 1)
    relative = (above / rms).nan_to_num(nan=0.0, posinf=math.inf)
    mine, theirs, least = relative.unbind(1)
    at = (mine - least).argmax(-1, keepdim=True)
    worst = relative.gather(-1, at.unsqueeze(1).expand(2, 3, 1))
    of_all = units_of_a_norm(candidate.dtype, largest[2], whole[2], scale) * scale
    few = torch.stack([scale, of_all, squares[2].amax()])
    numbers = torch.cat([whole, few, largest, worst.flatten(), theirs.amax(-1), at.flatten().double(), counts])
    # One transfer for all of them: each would wait for the device by itself.
    ours, librarys, exact, mean, unit, heaviest, _, _, peak, row, _, row_floor, element, _, element_floor, *rest = (
        numbers.tolist()
    )
    library_row, library_element, place, _, stray, poisoned = rest
    if not thorough and not (math.isfinite(ours + librarys + exact) and peak <= _largest(candidate.dtype)):
        return None
    norm, row_least = math.sqrt(exact), least_error(candidate.dtype, rounded=librarys > 0)
    return Measures(
        frobenius=_ratio(math.sqrt(ours), norm),
        row=row,
        element=element,
        library_frobenius=_ratio(math.sqrt(librarys), norm),
        library_row=library_row,
        library_element=library_element,
        frobenius_floor=_ratio(max(eps * unit, quantum), mean),
        row_floor=row_floor,
        element_floor=element_floor,
        worst_row=int(place) * together,
        stray=int(stray),
        poisoned=int(poisoned),
        elements=candidate.numel(),
        frobenius_least=row_least * min(1.0, math.sqrt(1 / 3 + _ratio(heaviest, exact))),
        row_least=row_least,
    )


def least_error(dtype: torch.dtype, *, rounded: bool) -> float:
    """The relative error that a row may have at least: LEAST_UNITS of float32 if the library's was rounded, else 0.

    A function that rounds nothing is exact in every kernel.
    """
    import torch

    return LEAST_UNITS * torch.finfo(dtype).eps if rounded and dtype is torch.float32 else 0.0


def units_of_a_norm(
    dtype: torch.dtype, peak: torch.Tensor, squares: torch.Tensor, rms: torch.Tensor
) -> torch.Tensor | float:
    """Units in the last place by which rounding may change a norm, relative to that norm.

    peak, squares, rms: the largest magnitude, the sum of squares and the root mean square of the right values.
    Kernels for 16 bits and fewer compute in a wider dtype and round at the end. The root mean square of that error is
    at most 1/sqrt(12) units. The largest element may be off by a whole unit, which counts where few elements make the
    norm. Values of one magnitude are all rounded alike, so there it is one unit. Kernels for float32 round at each
    step, so there it is one unit too.
    """
    import torch

    if dtype.is_floating_point and torch.finfo(dtype).bits >= 32:
        return 1.0
    share = (1 / 12 + peak.square() / squares).sqrt().clamp(max=1.0).nan_to_num(nan=1.0)
    return torch.where(peak <= ALIKE * rms, 1.0, share)


def grain(dtype: torch.dtype) -> tuple[float, float]:
    """Relative spacing of the dtype's numbers, and absolute spacing of its smallest ones; zeros for integers."""
    import torch

    if not dtype.is_floating_point:
        return 0.0, 0.0
    info = torch.finfo(dtype)
    return info.eps, info.smallest_normal * info.eps


def _largest(dtype: torch.dtype) -> float:
    """The largest finite number of the dtype; infinity for integers."""
    import torch

    return torch.finfo(dtype).max if dtype.is_floating_point else math.inf


def _finite_block(candidate: torch.Tensor, right: torch.Tensor, library: torch.Tensor) -> _Sums:
    """The same as _block where every element is finite, in a sixth of its passes over memory; not finite elsewhere."""
    import torch

    exact = right.double()
    counts = torch.zeros(2, dtype=torch.float64, device=exact.device)
    # A narrower type is widened on the way, without a copy; truth values and 8 bits are not.
    wide = (answer.double() if answer.element_size() == 1 else answer for answer in (candidate, library))
    if exact.numel() <= SMALL_BLOCK:
        # Few calls of torch. That of the largest magnitude takes a tenth of the norm's time, and memory for a copy.
        three = torch.stack([*(answer - exact for answer in wide), exact])
        return torch.linalg.vector_norm(three, dim=-1).square(), three.abs().amax(-1), counts
    squares, peaks = [], []
    for values in (*(answer - exact for answer in wide), exact):
        squares.append(torch.linalg.vector_norm(values, dim=-1).square())
        peaks.append(torch.linalg.vector_norm(values, math.inf, dim=-1))
    return torch.stack(squares), torch.stack(peaks), counts


def _block(candidate: torch.Tensor, right: torch.Tensor, library: torch.Tensor, poison: int | None) -> _Sums:
    """(sums of squares (3, rows), largest magnitudes (3, rows), counts of stray and poisoned elements (2)).

    The three are the candidate's difference, the library's difference and the reference.
    """
    import torch

    answer, theirs = candidate.double(), library.double()
    rounded = right.to(candidate.dtype).double()
    finite = answer.isfinite() & theirs.isfinite() & rounded.isfinite()
    agrees = (answer == rounded) | (answer == theirs) | (answer.isnan() & (rounded.isnan() | theirs.isnan()))
    stray = (~finite & ~agrees).sum()
    untouched = torch.zeros_like(stray)
    if poison is not None and candidate.element_size() in (2, 4) and candidate.is_floating_point():
        halves = (candidate.contiguous().view(torch.int16) == poison).view(*candidate.shape, -1).all(-1)
        untouched = halves.sum()
    reference = torch.where(finite, right, 0.0)
    differences = [torch.where(finite, values - reference, 0.0) for values in (answer, theirs)]
    stacked = torch.stack([*differences, reference])
    return stacked.square().sum(-1), stacked.abs().amax(-1), torch.stack([stray, untouched]).double()


def taken_together(width: int) -> int:
    """Neighbouring rows that count as one. width: elements of a row."""
    return -(-ROW_ELEMENTS // max(1, width))


def grouped(values: torch.Tensor, together: int) -> torch.Tensor:
    """(kinds, rows) to (kinds, groups, together), the last group filled up with zeros."""
    import torch

    missing = -values.shape[1] % together
    return torch.nn.functional.pad(values, (0, missing)).view(values.shape[0], -1, together)


def _ratio(above: float, below: float) -> float:
    """Their quotient, of numbers that are not negative; 0 where both are zero, infinite where only the divisor is."""
    if below == 0.0:
        return math.inf if above > 0.0 else 0.0
    return 0.0 if math.isnan(quotient := above / below) else quotient
