"""Dealing on a card: the kernels that mix values there, for each kind of numbers, and the stream that they run on."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from perfsuite.clock.deck import Deck
from perfsuite.clock.mixed import words_of
from perfsuite.clock.windows import Windows
from perfsuite.problems.base import Inputs
from perfsuite.problems.orders import movable
from perfsuite.problems.tensors import keep, same_bits, tensors_in

pytestmark = pytest.mark.gpu
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64]
OTHERS = [torch.int8, torch.uint8, torch.float8_e4m3fn, torch.float8_e5m2]


def values(dtype: torch.dtype, *size: int) -> torch.Tensor:
    if not (dtype.is_floating_point or dtype.is_complex):
        return torch.randint(0, 120, size, device="cuda").to(dtype)
    wide = torch.complex64 if dtype.is_complex else torch.float64 if dtype is torch.float64 else torch.float32
    return torch.randn(*size, device="cuda", dtype=wide).to(dtype)


def operands(dtype: torch.dtype) -> Callable[[], Inputs]:
    """One of several tiles of the mask that nothing divides, one that lies transposed, and one of few elements."""
    return lambda: Inputs((values(dtype, 3, 70_001), values(dtype, 40, 96).t(), values(dtype, 33)))


def differing(one: torch.Tensor, other: torch.Tensor) -> float:
    bits = [words_of(each.t().contiguous().flatten()) for each in (one, other)]
    return float((bits[0] != bits[1]).double().mean())


@pytest.mark.parametrize("stacked", [True, False])
@pytest.mark.parametrize("dtype", [*FLOATS, *OTHERS], ids=str)
def test_values_are_new_throughout_and_stay_where_they_are(dtype: torch.dtype, stacked: bool) -> None:
    make = operands(dtype)
    deck = Deck(make, make(), 4, "elements", stacked=stacked)
    assert deck.dealt == [0, 1, 2]
    assert all(group.mask.chooses == (dtype in OTHERS) for group in deck._moving[:2] if isinstance(group, Windows))
    places = [tensor.data_ptr() for tensor in tensors_in(deck.sets)]
    seen = [keep(deck.sets)]
    for _ in range(3):
        deck.deal()
        seen.append(keep(deck.sets))
    assert [tensor.data_ptr() for tensor in tensors_in(deck.sets)] == places
    for number, old in enumerate(seen):
        for new in seen[number + 1 :]:
            for one, other in zip(tensors_in(old), tensors_in(new), strict=True):
                assert differing(one, other) > 0.8 or one.numel() < 100
    for one in tensors_in(seen[-1]):
        whole = one.to(torch.complex64 if dtype.is_complex else torch.float64)
        assert bool(whole.isfinite().all())
        if dtype.is_floating_point and one.numel() > 1000:
            assert 0.9 < float(whole.std()) < 1.1


@pytest.mark.parametrize("dtype", [torch.float16, torch.float8_e4m3fn, torch.int8], ids=str)
def test_the_same_values_are_dealt_again(dtype: torch.dtype) -> None:
    make = operands(dtype)
    deck = Deck(make, make(), 5, "elements", stacked=True)
    deck.deal()
    before = keep(deck.sets)
    for tensor in tensors_in(deck.sets):
        words_of(tensor.t() if tensor.dim() == 2 and not tensor.is_contiguous() else tensor).zero_()
    deck.restore([(1, 2), (4, 1)])
    again = [same_bits(one, other) for one, other in zip(before, deck.sets, strict=True)]
    assert again == [False, True, True, False, True]


def test_whole_numbers_truth_values_and_offsets_move() -> None:
    offsets = torch.tensor([0, 4, 5, 17, 20, 31, 40], device="cuda")

    def make() -> Inputs:
        table = torch.randint(0, 10**6, (4096,), device="cuda", dtype=torch.int32)
        return Inputs((values(torch.float16, 40, 64), table, torch.rand(64, 9, device="cuda") < 0.3, offsets.clone()))

    deck = Deck(make, make(), 3, "elements", stacked=True, integers=movable(make().args))
    before = keep(deck.sets)
    deck.deal()
    for one, old in zip(deck.sets, before, strict=True):
        assert all(not same_bits(new, was) for new, was in zip(one.args[:3], old.args[:3], strict=True))
        assert (int(one.args[3][0]), int(one.args[3][-1])) == (0, 40)


@pytest.mark.parametrize("stacked", [True, False])
def test_dealing_is_ordered_on_the_stream_that_asks_for_it(stacked: bool) -> None:
    """What was enqueued there before reads the old values, and what comes behind it reads the new ones."""
    stream = torch.cuda.Stream()
    deck = Deck(operands(torch.float16), operands(torch.float16)(), 3, "elements", stacked=stacked)
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        deck.deal()
        stream.synchronize()
        old = keep(deck.sets)
        stream.synchronize()
        torch.cuda._sleep(500_000_000)
        first = keep(deck.sets)
        deck.deal()
        second = keep(deck.sets)
        assert not stream.query()  # the host has waited for nothing
    stream.synchronize()
    assert same_bits(first, old)
    assert not same_bits(second, old)
    assert same_bits(second, deck.sets)


def test_a_large_operand_gets_a_stretch() -> None:
    def make() -> Inputs:
        return Inputs((torch.randn(5 << 27, device="cuda", dtype=torch.float16),))

    deck = Deck(make, make(), 2, "elements", stacked=True)
    assert isinstance(group := deck._moving[0], Windows)
    assert group.large
    deck.share = 0.05
    before = keep(deck.sets)
    deck.deal()
    for one, old in zip(deck.sets, before, strict=True):
        assert 0.01 < differing(one.args[0], old.args[0]) < 0.06
