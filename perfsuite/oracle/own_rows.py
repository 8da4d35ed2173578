"""Judges a few rows by the library's own errors in these very rows, before they make an answer wrong.

Some rows are less exact than others, for every kernel. In attention's gradients such a row has one key with most of
the weight: its result is the small difference of two large numbers, and one of them was rounded. How far off it is in
one draw is one random number. So the library's worst row may be a lucky one where the candidate's is not.

The inputs are moved by one unit in the last place again and again. That leaves the row what it is, and draws the
library's roundings anew. Its largest error in that row, against the float64 answer there, sets the row's limit. An
ordinary row gains nothing from it: there the library is as exact as ever.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from perfsuite.oracle.measures import Measures
from perfsuite.oracle.rows import rows_of, sizes, without
from perfsuite.oracle.yardstick import TIMES_THE_LIBRARY, Limits

if TYPE_CHECKING:
    import torch

MOST = 4
"""Rows, or groups of short rows, that may have a limit of their own. A kernel that is off in more is judged as ever."""


def without_inexact_rows(
    found: Measures,
    allowed: Limits,
    candidate: torch.Tensor,
    right: torch.Tensor,
    library: torch.Tensor,
    moved: Iterable[tuple[torch.Tensor, torch.Tensor]],
) -> Measures:
    """`found` without the errors of those rows beyond `allowed` that are within limits of their own.

    candidate, right, library: results of one shape, `right` in float64. moved: (float64 answer, library's answer) on
    moved inputs; they are computed only if there are few such rows.
    """
    import torch

    if candidate.dim() == 0:
        return found
    rows = [rows_of(one) for one in (candidate, right, library)]
    size, _ = sizes(rows[1])
    members = rows[1].numel() / max(1, len(size))
    rms = size / members**0.5
    error, peak = sizes(rows[0], rows[1])
    beyond = (error > allowed.row * size) | (peak > allowed.element * rms)
    places = beyond.nonzero().flatten()
    if not 0 < len(places) <= MOST:
        return found
    errors, peaks = [], []
    for exact, answer in moved:
        if answer.shape == library.shape:
            # An answer of the library that is not finite in such a row would allow anything.
            error_there, peak_there = (
                one[places].nan_to_num(0.0, 0.0, 0.0) for one in sizes(rows_of(answer), rows_of(exact))
            )
            errors.append(error_there)
            peaks.append(peak_there)
    if not errors:
        return found
    # The floors are those of the worst row.
    most_error = TIMES_THE_LIBRARY * torch.stack(errors).amax(0) + found.row_floor * size[places]
    most_peak = TIMES_THE_LIBRARY * torch.stack(peaks).amax(0) + found.element_floor * rms[places]
    # Written so that a NaN counts as too large.
    within = (error[places] <= most_error) & (peak[places] <= most_peak)
    if not bool(within.any()):
        return found
    beyond[places] = within
    return without(beyond, found, *rows)
