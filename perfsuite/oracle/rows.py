"""Rows of a result, grouped as `measure` does: their norms, their largest elements, and the errors without some."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from perfsuite.oracle.measures import BLOCK_ELEMENTS, Measures, grouped, measure, taken_together

if TYPE_CHECKING:
    import torch


def rows_of(values: torch.Tensor) -> torch.Tensor:
    """The rows of the last axis; of complex numbers, both parts. Of a number without an axis, one row."""
    import torch

    values = torch.view_as_real(values.resolve_conj()).flatten(-2) if values.is_complex() else values
    return values.detach().reshape(-1, values.shape[-1] if values.dim() else 1)


def sizes(rows: torch.Tensor, others: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """(norm, largest magnitude) of each group of rows, or of its difference from `others`, in float64."""
    import torch

    step = max(1, BLOCK_ELEMENTS[rows.device.type] // max(1, rows.shape[1]))
    squares, peaks = [], []
    for start in range(0, len(rows), step):
        block = rows[start : start + step].double()
        if others is not None:
            block = block - others[start : start + step].double()
        squares.append(block.square().sum(-1))
        peaks.append(block.abs().amax(-1))
    both = grouped(torch.stack([torch.cat(squares), torch.cat(peaks)]), taken_together(rows.shape[1]))
    return both[0].sum(-1).sqrt(), both[1].amax(-1)


def without(
    groups: torch.Tensor, found: Measures, candidate: torch.Tensor, right: torch.Tensor, library: torch.Tensor
) -> Measures:
    """`found` with the errors of all rows but those of `groups` (bool). The results are given by their rows."""
    others = ~groups.repeat_interleave(taken_together(candidate.shape[1]))[: len(candidate)]
    rest = measure(*(one[others] for one in (candidate, right, library)))
    left = others.nonzero().flatten()
    worst = int(left[rest.worst_row]) if len(left) else found.worst_row
    return replace(found, row=rest.row, element=rest.element, worst_row=worst)
