"""The deck: whole operands take each other's places, at fixed addresses, from a reserve that no side sees."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest
import torch

from perfsuite.clock import deck as deck_module
from perfsuite.clock import mixed as mixed_module
from perfsuite.clock import windows as windows_module
from perfsuite.clock.deck import Deck, put, ranges
from perfsuite.clock.mixed import changing_bits, words_of
from perfsuite.clock.turned import MOST_DRAWN
from perfsuite.problems import Attention, Gemm
from perfsuite.problems.base import Inputs
from perfsuite.problems.orders import Move, movable
from perfsuite.problems.tensors import keep, same_bits, tensors_in

GENERATOR = torch.Generator().manual_seed(0)


def deck_of(make: Any, count: int, moves: Any = "elements", *, stacked: bool = True) -> Deck:
    """A deck whose secret draws are the same in every run."""
    deck = Deck(make, make(), count, moves, stacked=stacked)
    deck._secret = random.Random(5)  # type: ignore[assignment]
    return deck


@pytest.mark.parametrize("stacked", [True, False])
@pytest.mark.parametrize("problem", [Gemm(40, 30, 20, trans_a=True), Gemm(1, 9, 32), Attention(1, 2, 30, 8)])
def test_every_operand_is_new_throughout_and_stays_where_it_is(problem: Gemm | Attention, stacked: bool) -> None:
    deck = deck_of(lambda: problem.inputs(GENERATOR), 5, stacked=stacked)
    places = [tensor.data_ptr() for one in deck.sets for tensor in tensors_in(one)]
    forms = [(one.shape, one.stride()) for one in tensors_in(problem.inputs(GENERATOR))] * 5
    assert [(one.shape, one.stride()) for sets in deck.sets for one in tensors_in(sets)] == forms
    assert all(place % 16 == 0 for place in places) or not stacked
    seen = [keep(deck.sets)]
    for _ in range(3):
        deck.deal()
        seen.append(keep(deck.sets))
    assert [tensor.data_ptr() for one in deck.sets for tensor in tensors_in(one)] == places
    for old, new in itertools.combinations(seen, 2):
        for one, other in zip(tensors_in(old), tensors_in(new), strict=True):
            # A window of few elements comes again now and then.
            assert int((one == other).sum()) < max(8, one.numel() // 10) or one.numel() < 100
    for one in tensors_in(seen[-1]):
        assert one.numel() < 200 or 0.7 < float(one.double().std()) < 1.3


@pytest.mark.parametrize("stacked", [True, False])
def test_the_same_values_can_be_dealt_again_to_some_sets(stacked: bool) -> None:
    deck = deck_of(lambda: Gemm(16, 16, 16).inputs(GENERATOR), 6, stacked=stacked)
    deck.deal()
    before = keep(deck.sets)
    for tensor in tensors_in(deck.sets):
        tensor.zero_()
    deck.restore([(1, 2), (5, 1)])
    again = [same_bits(one, other) for one, other in zip(before, deck.sets, strict=True)]
    assert again == [False, True, True, False, False, True]


def test_indices_and_masks_move_together_and_as_they_are() -> None:
    def make() -> Inputs:
        mark = int(torch.randint(100, (), generator=GENERATOR))
        return Inputs((torch.randn(64), torch.arange(64) + mark, torch.arange(64) % (mark + 1) == 0), {"scale": mark})

    deck = deck_of(make, 4)
    orders = set()
    for _ in range(12):
        deck.deal()
        marks = []
        for one in deck.sets:
            mark = int(one.args[1][0])
            assert torch.equal(one.args[1], torch.arange(64) + mark)
            assert torch.equal(one.args[2], torch.arange(64) % (mark + 1) == 0)
            marks.append(mark)
        orders.add(tuple(marks))
    assert len(orders) > 3


def test_tensors_that_belong_together_stay_together() -> None:
    def make() -> Inputs:
        value = torch.randn(32, generator=GENERATOR)
        return Inputs((value, value.sort().values))

    deck = deck_of(make, 3, "sets")
    first = keep(deck.sets)
    moved = 0
    for _ in range(8):
        deck.deal()
        for one, old in zip(deck.sets, first, strict=True):
            assert torch.equal(one.args[0].sort().values, one.args[1])
            moved += not same_bits(one, old)
    assert moved


def test_a_single_hot_set_gets_other_values_too() -> None:
    deck = deck_of(lambda: Inputs((torch.randn(64), torch.randint(9, (8,)))), 1)
    seen = []
    for _ in range(6):
        deck.deal()
        seen.append((tuple(deck.sets[0].args[0].tolist()), tuple(deck.sets[0].args[1].tolist())))
    assert len({one for one, _ in seen}) > 3
    assert len({one for _, one in seen}) > 1


@pytest.mark.parametrize("moves", ["elements", "sets"])
def test_expanded_overlapping_and_scalar_inputs_are_dealt_without_error(moves: Any) -> None:
    def make() -> Inputs:
        both = torch.randn(2, 16)
        return Inputs((torch.randn(4, 1).expand(4, 8), *both.unbind(), torch.tensor(0.5), torch.empty(0), 3))

    deck = deck_of(make, 3, moves)
    before = keep(deck.sets)
    moved = 0
    for _ in range(6):
        deck.deal()
        moved += not same_bits(before, deck.sets)
    assert moved
    assert all(float(one.args[3]) == 0.5 for one in deck.sets)
    # Views of one allocation stay views of it.
    assert all(
        one.args[1].untyped_storage().data_ptr() == one.args[2].untyped_storage().data_ptr() for one in deck.sets
    )


def test_a_tensor_that_is_passed_twice_stays_one() -> None:
    def make() -> Inputs:
        twice = torch.randn(16)
        return Inputs((twice, torch.randn(16), twice))

    deck = deck_of(make, 3)
    before = keep(deck.sets)
    deck.deal()
    for one, old in zip(deck.sets, before, strict=True):
        assert one.args[0] is one.args[2]
        assert not torch.equal(one.args[1], old.args[1])


def test_inputs_of_the_caller_do_not_move() -> None:
    own = torch.randn(8)
    deck = deck_of(lambda: Inputs((own,)), 2, "none")
    deck.deal()
    assert not deck.moves
    assert all(one.args[0] is own for one in deck.sets)


def test_inputs_of_changing_sizes_do_not_move() -> None:
    sizes = itertools.count(4)
    assert not deck_of(lambda: Inputs((torch.randn(next(sizes)),)), 3).moves


def test_a_deck_can_move_to_other_memory() -> None:
    deck = deck_of(lambda: Inputs((torch.randn(64), torch.randint(9, (8,)))), 3, stacked=False)
    placed, old = keep(deck.sets), keep(deck.sets)
    deck.adopt(placed)
    deck.deal()
    assert deck.sets is placed
    assert not any(same_bits(one, other) for one, other in zip(placed, old, strict=True))


@pytest.mark.parametrize("rows", ["at equal distances", "backwards", "in two allocations"])
def test_values_are_dealt_to_copies_wherever_they_lie(rows: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows at equal distances get their values in one copy: hundreds of them by themselves take 1 ms."""
    monkeypatch.setattr(windows_module, "in_view", lambda *_: False)  # as on a card, torch moves the values
    deck = deck_of(lambda: Gemm(16, 8, 12, trans_a=True).inputs(GENERATOR), 6)
    memory = [torch.full((6, 1024), torch.nan, dtype=torch.float16) for _ in range(4)]

    def placed(operand: int, number: int, like: torch.Tensor) -> torch.Tensor:
        there = memory[2 * operand + (rows == "in two allocations" and number % 2)]
        row = 5 - number if rows == "backwards" else number
        return there.as_strided(like.shape, like.stride(), 1024 * row + 8).copy_(like)

    deck.adopt([Inputs(tuple(placed(operand, number, one) for operand, one in enumerate(tensors_in(inputs))), {})
                for number, inputs in enumerate(deck.sets)])  # fmt: skip
    copies = []
    monkeypatch.setattr(torch, "_foreach_copy_", lambda into, values: copies.append(
        [one.copy_(value) for one, value in zip(into, values, strict=True)]))  # fmt: skip
    before = keep(deck.sets)
    deck.deal([(1, 2), (4, 1)])
    assert len(copies) == (0 if rows == "at equal distances" else 4)
    changed = [not same_bits(one, other) for one, other in zip(before, deck.sets, strict=True)]
    assert changed == [False, True, True, False, True, False]
    dealt = keep(deck.sets)
    for one in tensors_in(deck.sets):
        one.zero_()
    deck.restore([(1, 2), (4, 1)])
    assert [same_bits(one, other) for one, other in zip(dealt, deck.sets, strict=True)] == changed
    changing = changing_bits(torch.randn(4096, generator=GENERATOR).half())
    drawn = torch.cat([group.line for group in deck._moving])  # type: ignore[union-attr]
    got = torch.cat([one.reshape(-1) for one in tensors_in([deck.sets[n] for n in (1, 2, 4)])])
    kept = [set((words_of(one) & ~changing).tolist()) for one in (got, drawn)]
    assert len(kept[0]) > 30
    assert kept[0] <= kept[1]
    assert all(bool(there.isnan()[:, 512:].all()) for there in memory)  # nothing else is written


def test_hard_inputs_take_the_place_of_others_and_leave_again() -> None:
    deck = deck_of(lambda: Inputs((torch.randn(64), torch.randn(4, 1).expand(4, 8))), 3)
    put(deck.sets[1], Inputs((torch.full((64,), 7.0), torch.full((4, 1), 7.0).expand(4, 8))))
    assert all(bool((tensor == 7.0).all()) for tensor in tensors_in(deck.sets[1]))
    deck.deal([(1, 1)])
    assert not any(bool((tensor == 7.0).any()) for tensor in tensors_in(deck.sets))


def test_stretches_of_a_ring() -> None:
    assert ranges(2, 3, 6) == [(2, 3)]
    assert ranges(4, 3, 6) == [(4, 2), (0, 1)]
    assert ranges(10, 9, 6) == [(4, 2), (0, 4)]


@pytest.mark.parametrize("stacked", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8, torch.complex128])
def test_values_are_dealt_bit_by_bit(dtype: torch.dtype, stacked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each set has a window of all values that were drawn, with other bits; of integers two, element by element."""
    monkeypatch.setattr(mixed_module, "TILE", 75)  # two of them and a part
    drawn: list[torch.Tensor] = []

    def make() -> Inputs:
        values = torch.randn(100, 2, generator=GENERATOR, dtype=dtype if dtype.is_complex else torch.float32)
        drawn.append(values.mul(30).to(dtype))
        return Inputs((drawn[-1].t(), drawn[-1].clone().conj()))

    deck = deck_of(make, 4, stacked=stacked)
    line = torch.cat([one.flatten() for one in drawn])
    lines = line, line.conj().resolve_conj()
    changing = changing_bits(line)
    assert bool(changing) == (dtype is not torch.int8)
    for _ in range(5):
        deck.deal(ranges(3, 2, 4))
        for one in deck.sets:
            for values, line in zip((one.args[0].t(), one.args[1]), lines, strict=True):
                dealt = words_of(values.resolve_conj().flatten())
                windows = words_of(line).unfold(0, len(dealt), len(dealt) // 200)
                shares = ((windows ^ dealt) & ~changing == 0).double().mean(-1).sort(descending=True).values
                assert shares[0] == 1.0 if changing else shares[0] + shares[1] > 0.98


@pytest.mark.parametrize("stacked", [True, False])
def test_a_share_of_each_operand_is_a_stretch_at_a_place_drawn_anew(stacked: bool) -> None:
    deck = deck_of(lambda: Inputs((torch.randn(64, 64),)), 3, stacked=stacked)
    deck.share = 0.25
    touched = torch.zeros(64 * 64, dtype=torch.bool)
    for _ in range(40):
        before = keep(deck.sets)
        deck.deal()
        changed = [(one.args[0] != old.args[0]).flatten() for one, old in zip(deck.sets, before, strict=True)]
        assert all(0.1 < float(one.double().mean()) < 0.3 for one in changed)
        touched |= changed[0]
    assert float(touched.double().mean()) > 0.9


@pytest.mark.parametrize("written", [(), (0,)])
def test_a_large_operand_needs_no_copy_of_its_size(written: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deck_module, "LINE_BYTES", 1 << 12)
    monkeypatch.setattr(windows_module, "PART_BYTES", 1 << 10)
    monkeypatch.setattr(deck_module, "RESERVE_BYTES", 1 << 12)
    made = []

    def make() -> Inputs:
        made.append(Inputs((torch.randn(64, 64), torch.randn(64, 64))))
        return made[-1]

    deck = Deck(make, make(), 2, "elements", stacked=True, written=written)
    # No set is made for the reserve alone, unless a written operand has to be restored.
    assert len(made) == 2
    changed = []
    for _ in range(20):
        before = keep(deck.sets)
        deck.deal()
        for one, old in zip(deck.sets, before, strict=True):
            changed.append([float((new != was).double().mean()) for new, was in zip(one.args, old.args, strict=True)])
    for shares in zip(*(one[len(written) :] for one in changed), strict=True):
        assert max(shares) < 0.2
        # A stretch of the first set may get the values that it has had, since the line was taken from there.
        assert sum(share > 0.0 for share in shares) >= 30
    if written:
        dealt = keep(deck.sets)
        for one in deck.sets:
            one.args[0].zero_()
        deck.restore(only=written)
        assert same_bits(deck.sets, dealt)


def test_integers_move_by_rows_in_every_set_and_can_be_restored() -> None:
    table, lengths = torch.randint(0, 99, (40, 3)), torch.randperm(40)

    def make() -> Inputs:
        return Inputs((torch.randn(40, 8), table.clone(), lengths.clone()))

    deck = Deck(make, make(), 3, "elements", integers={1: Move(0), 2: Move(0)})
    still = Deck(make, make(), 3, "elements")
    rows = {(*row.tolist(), int(one)) for row, one in zip(table, lengths, strict=True)}
    seen = []
    for _ in range(3):
        deck.deal()
        still.deal()
        for one in deck.sets:
            assert {(*row.tolist(), int(one)) for row, one in zip(one.args[1], one.args[2], strict=True)} == rows
            seen.append(tuple(one.args[2].tolist()))
        assert all(torch.equal(one.args[2], lengths) for one in still.sets)
    assert len(set(seen)) == len(seen)
    before = keep(deck.sets)
    deck.sets[1].args[1].zero_()
    deck.restore()
    assert same_bits(before, deck.sets)


def test_offsets_and_masks_move_and_keep_what_they_say() -> None:
    offsets, lengths = torch.tensor([0, 4, 5, 17, 20, 31, 40]), torch.tensor([4, 1, 12, 3, 11, 9])
    mask = torch.rand(6, 9) < 0.3

    def make() -> Inputs:
        return Inputs((torch.randn(40, 2), offsets.clone(), lengths.clone(), mask.clone()))

    deck = Deck(make, make(), 2, "elements", integers=movable(make().args))
    seen = set()
    for _ in range(4):
        deck.deal()
        for _, starts, counts, covered in (one.args for one in deck.sets):
            assert torch.equal(starts.diff(), counts)
            assert (int(starts[0]), int(starts[-1])) == (0, 40)
            assert sorted(covered.sum(-1).tolist()) == sorted(mask.sum(-1).tolist())
            seen.add(tuple(starts.tolist()))
    assert len(seen) > 4


def test_integers_that_are_values_are_dealt_as_values_are() -> None:
    def make() -> Inputs:
        return Inputs((torch.randint(0, 1000, (512,)),))

    deck = Deck(make, make(), 2, "elements", integers={0: Move(0)})
    seen = set()
    for _ in range(20):
        deck.deal()
        seen |= {tuple(one.args[0].sort().values.tolist()) for one in deck.sets}
    assert len(seen) == 40


@pytest.mark.parametrize("dtype", [torch.float32, torch.float8_e4m3fn, torch.complex64, torch.int8])
def test_hundreds_of_sets_need_few_draws_and_all_differ(dtype: torch.dtype) -> None:
    calls = []

    def make() -> Inputs:
        calls.append(1)
        wide = 40 * torch.randn(2, 24, 32, generator=GENERATOR)
        return Inputs((wide[0].to(dtype).t(), wide[1].to(dtype).clone()), {"scale": 2.0})

    deck = deck_of(make, 300)
    assert len(calls) <= MOST_DRAWN + 1
    assert {one.kwargs["scale"] for one in deck.sets} == {2.0}
    forms = {tuple((one.shape, one.stride(), one.dtype) for one in tensors_in(inputs)) for inputs in deck.sets}
    assert forms == {tuple((one.shape, one.stride(), one.dtype) for one in tensors_in(make()))}
    for _ in range(2):
        for place in (0, 1):
            operands = [list(tensors_in(one))[place] for one in deck.sets]
            assert len({one.data_ptr() for one in operands}) == 300
            bits = [one.contiguous().view(torch.uint8).flatten() for one in operands]
            assert len({bytes(one.tolist()) for one in bits}) == 300
            assert len({bytes(sorted(one.tolist())) for one in bits}) > 290
            spread = torch.stack([one.to(torch.complex64 if dtype.is_complex else torch.float32) for one in operands])
            assert 38.0 < float(spread.std()) < 42.0
        deck.deal()


def test_operands_that_cannot_be_turned_are_drawn_one_by_one() -> None:
    calls = []

    def make() -> Inputs:
        calls.append(1)
        return Inputs((torch.randn(16, generator=GENERATOR), torch.arange(16)), {})

    deck_of(make, 100)
    assert len(calls) >= 100


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_bits_that_change_leave_sign_range_and_deviation(dtype: torch.dtype) -> None:
    wide = torch.float64 if dtype is torch.float64 else torch.float32
    normal = torch.randn(1 << 16, generator=GENERATOR, dtype=wide).to(dtype)
    shares = torch.rand(1 << 16, generator=GENERATOR, dtype=wide).to(dtype)
    shares[7] = 1.0
    for line in (normal, shares):
        changing = changing_bits(line)
        assert changing
        mask = mixed_module.Mask(line, len(line), random.Random(5))
        mixed = torch.empty_like(line)
        mask.mix(mask.draw(random.Random(6)), words_of(line)[None], list, words_of(mixed)[None])  # type: ignore[arg-type]
        assert bool((mixed.sign() == line.sign()).all())
        assert float((mixed == line).double().mean()) < 0.1
        assert 0.99 < float(mixed.double().std() / line.double().std()) < 1.02
    assert float(mixed.max()) < 1.0


def test_bits_of_values_that_may_have_a_meaning_stay() -> None:
    normal = torch.randn(1 << 12, generator=GENERATOR)
    infinite, rectified = normal.clone(), normal.relu()
    infinite[9] = -torch.inf
    lines = [infinite, rectified, normal.round(), normal.bfloat16().float(), torch.ones(4096), normal.to(torch.int8)]
    assert not any(changing_bits(line) for line in [*lines, torch.full((64,), torch.nan)])


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int64, torch.complex64])
def test_a_card_chooses_what_a_processor_chooses(dtype: torch.dtype) -> None:
    """A call of truth values there, and three of bits here."""
    line = torch.randint(0, 99, (4000,), generator=GENERATOR).to(dtype)
    mask = mixed_module.Mask(line, 1000, random.Random(5))
    words = words_of(line)
    one, other = (words[at : at + 1000 * mask.each].view(2, -1) for at in (0, 2000 * mask.each))
    by_bits, by_truth = torch.empty_like(one), torch.empty_like(one)
    mask.mix(77, one, lambda: other, by_bits)
    mask.words = mask.words.bool()
    mask.mix(77, one, lambda: other, by_truth)
    assert mask.chooses
    assert torch.equal(by_bits, by_truth)
    assert 0.3 < float((by_bits == one).double().mean()) < 0.8  # imaginary parts are zero in both


@pytest.mark.parametrize("mask", [torch.bool, torch.int16])
def test_kernels_for_every_alignment_are_loaded_before_values_are_dealt(
    mask: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Later a stream may wait for the host, and to load one may wait for that stream."""
    seen: list[tuple[bool, int]] = []

    def mixed(mask: torch.Tensor, one: torch.Tensor, other: torch.Tensor | None, into: torch.Tensor) -> None:
        assert (other is not None) == (mask.dtype is torch.bool)
        seen.append((into.is_contiguous(), int(mask.storage_offset())))

    monkeypatch.setattr(mixed_module.Mask, "_mix", staticmethod(mixed))
    mixed_module.load_kernels.__wrapped__(torch.int16, mask, torch.device("cpu"))
    assert set(seen) == {(whole, shift) for whole in (True, False) for shift in (0, 1, 2, 4, 8)}


def test_memory_for_mixed_values_is_fetched_once_whatever_the_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows_module, "in_view", lambda *_: False)  # as on a card, torch moves the values
    monkeypatch.setitem(windows_module.SCRATCH_BYTES, "cpu", 80_000)
    deck = deck_of(lambda: Inputs((torch.randn(1200, generator=GENERATOR),)), 60, stacked=False)
    group = deck._moving[0]
    assert isinstance(group, windows_module.Windows)
    places = set()
    for share in (1.0, 0.45, 0.7, 0.05):
        deck.share = share
        deck.deal()
        assert group.scratch is not None
        places.add((group.scratch.data_ptr(), group.scratch.nbytes))
    assert len(places) == 1
    assert places.pop()[1] == 80_000
