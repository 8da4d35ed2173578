"""Rows that hang on a few bits of the inputs are held to how far the library moves, and all others as ever."""

from __future__ import annotations

import torch

from perfsuite.oracle import Judgement, check
from perfsuite.problems import Custom, Inputs

ROW = 7


def scaled(x: torch.Tensor, y: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Each row of w times the product of the rows of x and y."""
    return (x * y).sum(-1, keepdim=True) * w


def cancelling() -> Inputs:
    """Operands whose product in one row is a millionth of its terms."""
    drawn = torch.Generator().manual_seed(0)
    x, y, w = (torch.randn(256, 64, generator=drawn) for _ in range(3))
    x[ROW, -1] = 0.0
    y[ROW, -1] = 1.0
    x[ROW, -1] = -(x[ROW].double() * y[ROW].double()).sum() + 1e-5
    return Inputs((x, y, w))


def judged(row: int, off: float) -> Judgement:
    """The judgement of the library's own result, with one row off by this share of a term's rounding."""
    inputs = cancelling()
    x, y, w = inputs.args
    rivals = scaled(x, y, w)
    mine = rivals.clone()
    mine[row] += off * torch.finfo(torch.float32).eps * 8.0 * w[row]
    return check(Custom((x, y, w), reference=scaled, label="scaled"), inputs, mine, rivals)


def test_a_row_that_cancels_may_be_off_as_far_as_its_inputs_roundings_move_it() -> None:
    assert judged(ROW, 0.5).ok
    found = judged(ROW, 30.0)
    assert not found.ok
    assert f"row {ROW}" in found.sentence


def test_no_other_row_may_be_further_off_for_it() -> None:
    assert not judged(ROW + 1, 100.0).ok


def test_beside_a_row_that_hangs_the_worst_of_the_others_is_named() -> None:
    inputs = cancelling()
    x, y, w = inputs.args
    w[ROW + 13] *= 1e-6
    rivals = scaled(x, y, w)
    mine = rivals.clone()
    mine[ROW] += 0.5 * torch.finfo(torch.float32).eps * 8.0 * w[ROW]
    mine[ROW + 13] *= 1.042  # less than the row that hangs
    found = check(Custom((x, y, w), reference=scaled, label="scaled"), inputs, mine, rivals)
    assert not found.ok
    assert f"row {ROW + 13} " in found.sentence
