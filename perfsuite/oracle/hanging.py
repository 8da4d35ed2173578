"""Leaves out rows that hang on a few bits of the inputs, where a relative error says nothing.

The gradient by a key that only one query sees is one number times that query. Where the number is a difference of two
that nearly cancel, its relative error is large for every kernel, and another one in each draw. Such rows have other
limits: together, and in the worst of them, they may be as far off as the library's move when the inputs change by one
unit in the last place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfsuite.oracle.measures import Measures
from perfsuite.oracle.rows import rows_of, sizes, without
from perfsuite.oracle.yardstick import FARTHEST_LIBRARY, TIMES_THE_LIBRARY

if TYPE_CHECKING:
    import torch

HANGS = 8.0
"""A row hangs on its inputs' last bits if it moves this many times as far as the median row, relative to its size, or
as far as an answer that counts as another one."""


def without_hanging_rows(
    found: Measures, candidate: torch.Tensor, right: torch.Tensor, library: torch.Tensor, moved: list[torch.Tensor]
) -> Measures:
    """`found` with the errors of the other rows; unchanged if there are none, or if one is off by more than it may be.

    candidate, right, library: results of one shape, `right` in float64. moved: the library's on moved inputs.
    """
    import torch

    moved = [one for one in moved if one.shape == library.shape]
    if candidate.dim() == 0 or not moved:
        return found
    rows = [rows_of(one) for one in (candidate, right, library)]
    size, error = sizes(rows[1])[0], sizes(rows[0], rows[1])[0]
    shift = torch.stack([sizes(rows_of(one), rows[2])[0] for one in moved]).amax(0)
    share = torch.where(size > 0, shift / size, 0.0).nan_to_num(0.0, 0.0, 0.0)
    hanging = (share > HANGS * share.median()) | (share > FARTHEST_LIBRARY)
    if not bool(hanging.any()):
        return found
    # One by one they would need many moves: each is one random number, which may be small by chance.
    mine, allowed = error[hanging], TIMES_THE_LIBRARY * shift[hanging]
    if bool(mine.amax() > allowed.amax()) or bool(mine.norm() > allowed.norm()):
        return found
    return without(hanging, found, *rows)
