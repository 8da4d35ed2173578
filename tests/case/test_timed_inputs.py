"""Inputs of timed calls: integers move where the rival takes it, and hard inputs on which it runs are among them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from perfsuite.case.run import compare
from perfsuite.case.timed_inputs import timed_inputs
from perfsuite.oracle import examine
from perfsuite.problems import Custom, Gemm
from perfsuite.problems.base import Problem
from perfsuite.problems.tensors import tensors_in
from perfsuite.settings import Settings

GENERATOR = torch.Generator().manual_seed(0)


def found(problem: Problem, rival: Any) -> Any:
    return timed_inputs(problem, rival, GENERATOR, Settings(device="cpu"))


def test_indices_move_where_the_rival_takes_another_order() -> None:
    given = torch.randn(30, 4), torch.randperm(30)
    takes = found(Custom(given, against=lambda x, at: x[at]), lambda x, at: x[at])
    assert takes.integers
    assert not takes.warnings

    def refuses(x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        if not torch.equal(at, given[1]):
            raise ValueError("an unknown plan\nmore")
        return x[at]

    fixed = found(Custom(given, against=refuses), refuses)
    assert not fixed.integers
    assert "in another order the rival raises ValueError: an unknown plan;" in fixed.warnings[0]


def test_kinds_that_the_rival_refuses_stay_alone_and_the_record_names_them() -> None:
    offsets, mask = torch.tensor([0, 2, 9, 10, 30]), torch.rand(30, 4) < 0.5

    def refuses(x: torch.Tensor, starts: torch.Tensor, used: torch.Tensor) -> torch.Tensor:
        if not torch.equal(starts, offsets):
            raise ValueError("an unknown plan")
        return x * used

    one = found(Custom((torch.randn(30, 4), offsets, mask), against=refuses), refuses)
    assert list(one.integers) == [2]
    assert one.warnings[0].startswith("int64[5] of the arguments is the same in all timed calls: in another order ")
    assert torch.equal(offsets, torch.tensor([0, 2, 9, 10, 30]))


def test_numbers_without_another_order_are_named() -> None:
    evenly = torch.arange(0, 40, 10)
    one = found(Custom((torch.randn(4), evenly), against=torch.add), torch.add)
    assert not one.integers
    assert one.warnings[0].startswith("int64[4] of the arguments is the same in all timed calls: no other order is")
    assert not found(Custom((torch.randn(4, 3),), against=torch.exp), torch.exp).warnings


def test_hard_inputs_are_those_on_which_the_rival_runs() -> None:
    problem = Custom((torch.randn(20, 20),), against=torch.exp)
    assert "large" not in found(problem, torch.exp).hard
    assert 1 <= len(found(problem, torch.exp).hard) <= 3
    softmax = found(problem, lambda x: x.softmax(-1)).hard
    assert {"large", "dominant"} < set(softmax)
    assert next(tensors_in(softmax["large"]())).abs().max() > 60
    assert len({frozenset(found(problem, lambda x: x.softmax(-1)).hard) for _ in range(40)}) > 1  # drawn in secret


@pytest.mark.parametrize("problem", [Gemm(8, 8, 8), Custom(lambda generator: (torch.randn(3),), against=torch.exp)])
def test_families_and_callables_say_it_themselves(problem: Problem) -> None:
    inputs = found(problem, lambda *args: pytest.fail("the rival was called"))
    assert set(inputs.hard) == set(problem.hard_distributions)
    assert not inputs.integers


def test_inputs_are_other_numbers_than_those_of_a_test_that_uses_the_same_seed() -> None:
    torch.manual_seed(7)
    own = torch.randn(64 * 256)
    seen = []

    def candidate(x: torch.Tensor) -> torch.Tensor:
        seen.append(x.clone())
        return x + 1.0

    problem = Custom(lambda generator: (torch.randn(64, generator=generator),), against=lambda x: x + 1.0, label="add")
    compare(problem, candidate, at_least=None, settings=Settings(device="cpu", seed=7))
    assert seen
    assert not any(torch.isin(one, own).any() for one in seen)


def test_the_rival_is_not_asked_again_on_what_the_examination_knows() -> None:
    seen: list[float] = []

    def rival(x: torch.Tensor) -> torch.Tensor:
        seen.append(float(x.abs().max()))
        return x.square()

    problem = Custom((torch.randn(30, 4),), against=rival)
    judgement = examine(problem, lambda x: x.square() * (1 + 2**-23), torch.Generator().manual_seed(0))
    assert judgement.hard
    assert all(judgement.hard.values())
    seen.clear()
    settings = Settings(device="cpu")
    assert timed_inputs(problem, rival, GENERATOR, settings, judgement.hard).hard.keys() <= judgement.hard.keys()
    assert not seen
    refused = dict.fromkeys(judgement.hard, False) | {"negative": True}
    assert list(timed_inputs(problem, rival, GENERATOR, settings, refused).hard) == ["medium", "negative"]
    assert len(seen) == 1  # nobody has tried the milder one of those that are refused


def test_hard_inputs_that_the_rival_refuses_are_known_as_such() -> None:
    def rival(x: torch.Tensor) -> torch.Tensor:
        if x.abs().max() > 20:
            raise ValueError("too large")
        return x.square()

    problem = Custom((torch.randn(30, 4),), against=rival)
    judgement = examine(problem, lambda x: x.square() * (1 + 2**-23), torch.Generator().manual_seed(0))
    assert judgement.ok
    assert {name for name, known in judgement.hard.items() if not known} >= {"large"}
    assert judgement.hard["negative"]
