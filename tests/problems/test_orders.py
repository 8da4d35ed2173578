"""Integers in another order: rows, and steps of sorted numbers, change places alike in all tensors of that length."""

from __future__ import annotations

import torch

from perfsuite.problems.orders import Move, movable, reordered, same_numbers, still

TABLE = torch.randint(0, 50, (6, 9))
LENGTHS = torch.tensor([3, 9, 1, 7, 5, 2], dtype=torch.int32)


def test_rows_keep_what_holds_within_them_and_belong_together() -> None:
    tensors = [torch.randn(6, 4), TABLE, LENGTHS]
    moves = movable(tensors)
    assert moves == {1: Move(0), 2: Move(0)}
    moved = reordered(tensors, moves, seed=3)
    before = {(*row.tolist(), int(length)) for row, length in zip(TABLE, LENGTHS, strict=True)}
    after = {(*row.tolist(), int(length)) for row, length in zip(moved[1], moved[2], strict=True)}
    assert before == after
    assert not torch.equal(moved[2], LENGTHS)
    assert torch.equal(reordered(tensors, moves, seed=3)[1], moved[1])
    assert moved[2].dtype is torch.int32


def test_edges_keep_their_two_ends() -> None:
    edges = torch.randint(0, 9, (2, 40))
    assert movable([edges]) == {0: Move(1)}
    moved = reordered([edges], {0: Move(1)}, seed=1)[0]
    assert sorted(map(tuple, moved.t().tolist())) == sorted(map(tuple, edges.t().tolist()))


def test_offsets_stay_sorted_between_their_ends_with_the_lengths_that_they_enclose() -> None:
    offsets = torch.tensor([0, 3, 12, 13, 20, 25, 27], dtype=torch.int32)
    tensors = [offsets, offsets.diff(), TABLE[:5]]
    moves = movable(tensors)
    assert moves == {0: Move(0, steps=True), 1: Move(0), 2: Move(0)}
    moved = reordered(tensors, moves, seed=3)
    assert not torch.equal(moved[0], offsets)
    assert torch.equal(moved[0].diff(), moved[1])
    assert sorted(moved[1].tolist()) == sorted(offsets.diff().tolist())
    assert (int(moved[0][0]), int(moved[0][-1]), moved[0].dtype) == (0, 27, torch.int32)


def test_sorted_numbers_stay_where_others_depend_on_them() -> None:
    lengths, evenly = torch.tensor([2, 3, 7, 11, 12, 20]), torch.arange(0, 60, 10)
    offsets = torch.tensor([0, 3, 12, 13, 20])
    assert movable([lengths]) == {0: Move(0, steps=True)}
    assert movable([lengths, TABLE]) == {}  # lengths of the rows of a table
    assert movable([evenly, TABLE]) == {}  # no order of equal steps differs
    assert movable([offsets, lengths]) == {}  # the same bounds may be said twice
    assert movable([offsets, torch.tensor([0, 1, 2, 30, 40])]).keys() == {0, 1}
    assert movable([offsets], fixed=[0]) == {}
    assert still([lengths, TABLE, torch.randn(3), torch.tensor(2)], {}) == [0, 1]


def test_one_number_a_row_is_not_sorted() -> None:
    column = torch.tensor([[3], [1], [2], [0]] * 8)
    assert movable([column]) == {0: Move(0)}


def test_masks_keep_the_number_of_places_in_each_row() -> None:
    mask = torch.tensor([[True, False, False], [True, True, False], [True, True, True], [False, False, True]])
    assert movable([mask, torch.ones(7, dtype=torch.bool)]) == {0: Move(0)}
    moved = reordered([mask], {0: Move(0)}, seed=1)[0]
    assert sorted(map(tuple, moved.tolist())) == sorted(map(tuple, mask.tolist()))


def test_what_is_no_index_stays() -> None:
    byte, one, scalar = torch.tensor([3, 1, 2], dtype=torch.uint8), torch.tensor([4]), torch.tensor(4)
    expanded = torch.tensor([[3], [1], [2], [0]]).expand(4, 3)
    assert movable([byte, one, scalar, expanded, torch.randn(5), torch.tensor([5, 2, 3, 1]).to_sparse()]) == {}


def test_the_same_numbers_in_any_order() -> None:
    assert same_numbers(LENGTHS, LENGTHS.flip(0))
    assert not same_numbers(LENGTHS, LENGTHS + 1)
