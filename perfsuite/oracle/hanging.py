"""Leaves out rows that hang on a few bits of the inputs, where a relative error says nothing.

The gradient by a key that only one query sees is one number times that query. Where the number is a difference of two
that nearly cancel, its relative error is large for every kernel, and another one in each draw. Such rows have other
limits: together, and in the worst of them, they may be as far off as the library's move when the inputs change by one
unit in the last place.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from perfsuite.oracle.measures import BLOCK_ELEMENTS, ROW_ELEMENTS, Measures, measure
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
    rows = [_rows(one) for one in (candidate, right, library)]
    size = _norms(rows[1])
    error = _norms(rows[0], rows[1])
    shift = torch.stack([_norms(_rows(one), rows[2]) for one in moved]).amax(0)
    share = torch.where(size > 0, shift / size, 0.0).nan_to_num(0.0, 0.0, 0.0)
    hanging = (share > HANGS * share.median()) | (share > FARTHEST_LIBRARY)
    if not bool(hanging.any()):
        return found
    # One by one they would need many moves: each is one random number, which may be small by chance.
    mine, allowed = error[hanging], TIMES_THE_LIBRARY * shift[hanging]
    if bool(mine.amax() > allowed.amax()) or bool(mine.norm() > allowed.norm()):
        return found
    others = ~hanging.repeat_interleave(_together(rows[0]))[: len(rows[0])]
    rest = measure(*(one[others] for one in rows))
    left = others.nonzero().flatten()
    worst = int(left[rest.worst_row]) if len(left) else found.worst_row
    return replace(found, row=rest.row, element=rest.element, worst_row=worst)


def _rows(values: torch.Tensor) -> torch.Tensor:
    """The rows of the last axis; of complex numbers, both parts."""
    import torch

    values = torch.view_as_real(values.resolve_conj()).flatten(-2) if values.is_complex() else values
    return values.detach().reshape(-1, values.shape[-1])


def _together(rows: torch.Tensor) -> int:
    """Neighbouring rows that `measure` takes together."""
    return -(-ROW_ELEMENTS // max(1, rows.shape[1]))


def _norms(rows: torch.Tensor, others: torch.Tensor | None = None) -> torch.Tensor:
    """The norm of each group of rows, or of its difference from `others`, in float64."""
    import torch

    step = max(1, BLOCK_ELEMENTS[rows.device.type] // max(1, rows.shape[1]))
    squares = []
    for start in range(0, len(rows), step):
        block = rows[start : start + step].double()
        if others is not None:
            block = block - others[start : start + step].double()
        squares.append(block.square().sum(-1))
    each = torch.cat(squares)
    together = _together(rows)
    return torch.nn.functional.pad(each, (0, -len(each) % together)).view(-1, together).sum(-1).sqrt()
