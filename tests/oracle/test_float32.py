"""What a float32 answer may be off by where the library is nearly exact, and what it may not."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from perfsuite.oracle import Judgement, check
from perfsuite.oracle.measures import measure
from perfsuite.oracle.yardstick import limits
from perfsuite.outcome import Reason
from perfsuite.problems import Custom

Call = Callable[..., torch.Tensor]
EPS = torch.finfo(torch.float32).eps


def softmax(x: torch.Tensor) -> torch.Tensor:
    """A library that rounds once."""
    return torch.softmax(x.double(), -1).float()


def judged(candidate: Call, library: Call, *args: torch.Tensor) -> Judgement:
    problem = Custom(args, against=library)
    inputs = problem.inputs(torch.Generator().manual_seed(0))
    return check(problem, inputs, candidate(*inputs.args))


def by_log_softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.log_softmax(x, -1).exp()


def by_logsumexp(x: torch.Tensor) -> torch.Tensor:
    return (x - torch.logsumexp(x, -1, keepdim=True)).exp()


def by_powers_of_two(x: torch.Tensor) -> torch.Tensor:
    x = x * math.log2(math.e)
    return torch.exp2(x - torch.log2(torch.exp2(x).sum(-1, keepdim=True)))


def by_exponentials(x: torch.Tensor) -> torch.Tensor:
    weights = (x - x.amax(-1, keepdim=True)).exp()
    return weights * (1.0 / weights.sum(-1, keepdim=True))


@pytest.mark.parametrize("shape", [(96, 384), (3, 200), (64, 2048), (1, 8192)])
@pytest.mark.parametrize("way", [by_log_softmax, by_logsumexp, by_powers_of_two, by_exponentials])
def test_every_way_to_a_softmax_is_right_beside_an_exact_library(way: Call, shape: tuple[int, int]) -> None:
    found = judged(way, softmax, torch.randn(shape))
    assert found.ok, found.sentence


def pair(x: torch.Tensor) -> torch.Tensor:
    """Two numbers of bfloat16 in place of one."""
    high = x.bfloat16().float()
    return high + (x - high).bfloat16().float()


def bits(count: int) -> Call:
    """Rounds to so many significant bits."""
    step = 1 << (24 - count)
    return lambda x: ((x.view(torch.int32) + step // 2) & -step).view(torch.float32)


CHEAPER = {
    "pairs of bfloat16": pair,
    "24 bits in memory": bits(16),
    "TF32": bits(11),
    "bfloat16": lambda x: x.bfloat16().float(),
}


@pytest.mark.parametrize("cheaper", CHEAPER)
def test_no_cheaper_format_is_right(cheaper: str) -> None:
    narrow, x = CHEAPER[cheaper], torch.randn(96, 384)
    for candidate in (lambda x: narrow(softmax(x)), lambda x: softmax(narrow(x))):
        assert judged(candidate, softmax, x).reason is Reason.INACCURATE


def test_three_products_of_bfloat16_are_wrong_for_one_of_float32() -> None:
    def three(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        (a, ra), (b, rb) = ((x.bfloat16().double(), (x - x.bfloat16().float()).bfloat16().double()) for x in (a, b))
        return (a @ b + a @ rb + ra @ b).float()

    found = judged(three, lambda a, b: (a.double() @ b.double()).float(), torch.randn(96, 64), torch.randn(64, 96))
    assert found.reason is Reason.INACCURATE


def off(units: float, rows: slice) -> Call:
    """The softmax, off by so many units of each element in some rows."""

    def candidate(x: torch.Tensor) -> torch.Tensor:
        right = torch.softmax(x.double(), -1)
        right[rows] *= 1.0 + units * EPS
        return right.float()

    return candidate


def test_many_rows_may_not_all_be_as_far_off_as_one() -> None:
    x = torch.randn(128, 512)
    one, all_rows = slice(5, 6), slice(None)
    assert judged(off(7.0, one), softmax, x).ok
    assert judged(off(4.0, all_rows), softmax, x).ok
    assert "relative error of row 5 " in judged(off(9.0, one), softmax, x).sentence
    found = judged(off(6.0, all_rows), softmax, x)
    assert found.reason is Reason.INACCURATE
    assert "at least 8 units of it in a row" in found.sentence


def test_where_nothing_is_rounded_nothing_is_allowed() -> None:
    found = judged(lambda x: x.mT * (1.0 + 3 * EPS), lambda x: x.mT, torch.randn(128, 64))
    assert found.reason is Reason.INACCURATE
    assert "at least" not in found.sentence


def test_another_subnormal_number_is_another_answer() -> None:
    """Five spacings of the smallest numbers are no rounding, though eight units of a normal number are."""
    smallest = torch.finfo(torch.float32).smallest_normal * EPS
    right = (5.0 + 60.0 * torch.rand(8, 512, dtype=torch.float64)) * smallest
    right[3, 4] = 5.0 * smallest
    candidate = library = right.float()
    assert limits(found := measure(candidate, right, library)).allow(found)
    candidate = library.clone()
    candidate[3, 4] = 0.0
    assert not limits(found := measure(candidate, right, library)).allow(found)


def test_other_dtypes_have_no_such_allowance() -> None:
    x = torch.randn(96, 384).bfloat16()
    library = lambda x: torch.softmax(x.double(), -1).bfloat16()  # noqa: E731
    found = judged(lambda x: (library(x).float() * (1 + 3 * torch.finfo(torch.bfloat16).eps)).bfloat16(), library, x)
    assert found.reason is Reason.INACCURATE
