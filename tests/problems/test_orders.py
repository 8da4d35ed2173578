"""Integers in another order: rows change places, alike in all tensors of that length; offsets stay."""

from __future__ import annotations

import torch

from perfsuite.problems.orders import movable, reordered, same_numbers

TABLE = torch.randint(0, 50, (6, 9))
LENGTHS = torch.tensor([3, 9, 1, 7, 5, 2], dtype=torch.int32)


def test_rows_keep_what_holds_within_them_and_belong_together() -> None:
    tensors = [torch.randn(6, 4), TABLE, LENGTHS, torch.rand(6) < 0.5]
    axes = movable(tensors)
    assert axes == {1: 0, 2: 0}
    moved = reordered(tensors, axes, seed=3)
    before = {(*row.tolist(), int(length)) for row, length in zip(TABLE, LENGTHS, strict=True)}
    after = {(*row.tolist(), int(length)) for row, length in zip(moved[1], moved[2], strict=True)}
    assert before == after
    assert not torch.equal(moved[2], LENGTHS)
    assert torch.equal(reordered(tensors, axes, seed=3)[1], moved[1])
    assert moved[2].dtype is torch.int32


def test_edges_keep_their_two_ends() -> None:
    edges = torch.randint(0, 9, (2, 40))
    assert movable([edges]) == {0: 1}
    moved = reordered([edges], {0: 1}, seed=1)[0]
    assert sorted(map(tuple, moved.t().tolist())) == sorted(map(tuple, edges.t().tolist()))


def test_offsets_stay_and_so_do_rows_that_they_count() -> None:
    offsets = torch.tensor([0, 3, 12, 13, 20, 25, 27])
    assert movable([offsets, LENGTHS, TABLE[:5]]) == {2: 0}


def test_what_is_no_index_stays() -> None:
    byte, one, scalar = torch.tensor([3, 1, 2], dtype=torch.uint8), torch.tensor([4]), torch.tensor(4)
    expanded = torch.tensor([[3], [1], [2], [0]]).expand(4, 3)
    assert movable([byte, one, scalar, expanded, torch.randn(5), torch.tensor([5, 2, 3, 1]).to_sparse()]) == {}


def test_the_same_numbers_in_any_order() -> None:
    assert same_numbers(LENGTHS, LENGTHS.flip(0))
    assert not same_numbers(LENGTHS, LENGTHS + 1)
