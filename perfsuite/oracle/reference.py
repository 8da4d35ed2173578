"""The right answer in float64, and how many of its rows are worth computing."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

from perfsuite.oracle.effort import DEAR_FLOPS
from perfsuite.problems.base import Inputs, Problem

if TYPE_CHECKING:
    import torch

MOST_FLOPS = {"cuda": DEAR_FLOPS, "cpu": 4e10}
"""FLOPs beyond which only some rows are computed; on a CPU about a second of two cores' float64."""
FEWEST_ROWS = 16


def reference(problem: Problem, inputs: Inputs, *, rows: torch.Tensor | None = None) -> Any:
    """The result of `problem` on `inputs` in float64, on the inputs' device.

    rows: indices, along the next to last axis of the result, of the rows to compute; all rows by default. Raises
    ReferenceUnavailableError if a custom problem has neither a reference nor a rival that takes float64.
    """
    return problem.answer(inputs, rows=rows)


def rows_to_check(problem: Problem, device: str, *, whole: bool = False) -> torch.Tensor | None:
    """Which rows of the result are computed and compared: None for all, or indices of some.

    Beyond MOST_FLOPS, as many rows as that many FLOPs allow are drawn afresh at every call (so that no candidate can
    know them), the first and the last always among them. whole: all of them on a GPU, however long it takes.
    """
    import torch

    most = MOST_FLOPS[device]
    total, flops = problem.row_count, problem.flops or 0.0
    if (whole and device != "cpu") or total is None or flops <= most:
        return None
    count = max(FEWEST_ROWS, int(total * most / flops))
    if count >= total:
        return None
    secret = torch.Generator().manual_seed(secrets.randbits(63))
    chosen = torch.randperm(total, generator=secret)[: count - 2]
    return torch.cat([chosen, torch.tensor([0, total - 1])]).unique()
