"""A result with the rival's bits is right without a right answer; any other result is compared with one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch

from perfsuite.case.run import compare
from perfsuite.case.timed_inputs import judged_call, timed_inputs
from perfsuite.clock.base import TimedCall
from perfsuite.oracle import examine
from perfsuite.outcome import Reason, Verdict
from perfsuite.problems import Custom, Gemm
from perfsuite.problems.base import Inputs
from perfsuite.problems.redraw import MILDER
from perfsuite.settings import Settings

SETTINGS = Settings(device="cpu", seconds=0.05)
X = torch.randn(64, 80, generator=torch.Generator().manual_seed(1))


class Rival:
    """Squares, and counts its calls: an eager one, and one for each right answer."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x.square()


def same(x: torch.Tensor) -> torch.Tensor:
    return x.square()


def rounded(x: torch.Tensor) -> torch.Tensor:
    """The rival's result, one unit off: right, and other bits."""
    return x.square() * (1 + 2**-23)


def hard_inputs_of(candidate: Any, **options: Any) -> tuple[Mapping[str, bool | None], int]:
    """The hard inputs of an examination, and the calls of the rival."""
    rival = Rival()
    judgement = examine(Custom((X,), against=rival, **options), candidate, torch.Generator().manual_seed(0))
    assert judgement.ok
    return judgement.hard, rival.calls


def test_hard_inputs_need_a_right_answer_only_for_other_bits_than_the_rivals() -> None:
    (mine, few), (others, many) = hard_inputs_of(same), hard_inputs_of(rounded)
    assert mine.keys() == others.keys()
    assert set(others.values()) == {True}
    assert {name for name, right in mine.items() if right is None} == mine.keys() - MILDER.keys()
    assert many - few == len(mine.keys() - MILDER.keys())


def test_a_reference_is_asked_whatever_the_bits_are() -> None:
    found, _ = hard_inputs_of(same, reference=lambda x: x.double().square())
    assert set(found.values()) == {True}
    rival, call = Rival(), TimedCall(Inputs((X,)), same(X), None)
    for reference, judged in ((None, False), (lambda x: x.double().square(), True)):
        problem = Custom((X,), against=rival, reference=reference)
        assert (judged_call(problem, call, rival, "normal", anew=False, right=True) is not None) is judged
    product = Gemm(8, 8, 8, dtype="float32")
    inputs = product.inputs(torch.Generator())
    both = torch.mm(*inputs.args)
    assert judged_call(product, TimedCall(inputs, both, both), torch.mm, "normal", anew=False, right=True) is not None


def test_a_rival_that_is_wrong_on_hard_inputs_does_not_choose_them() -> None:
    def careless(x: torch.Tensor) -> torch.Tensor:
        return (x + 1e8 - 1e8 if bool((x <= 0).all()) else x).square()  # in float32 nothing of x is left

    problem = Custom((X,), against=careless)
    known = examine(problem, careless, torch.Generator().manual_seed(0)).hard
    assert known["negative"] is None
    for _ in range(20):
        hard = timed_inputs(problem, careless, torch.Generator().manual_seed(0), SETTINGS, known).hard
        assert hard
        assert "negative" not in hard


@pytest.mark.parametrize(
    ("output", "ok"),
    [(X.square(), None), (X.square() * (1 + 2**-23), True), (X.square() * 1.01, False), ([X.square()], False)],
    ids=["same bits", "one unit off", "wrong", "another structure"],
)
def test_a_timed_call_is_judged_unless_it_has_the_rivals_bits_and_form(output: Any, ok: bool | None) -> None:
    rival = Rival()
    problem = Custom((X,), against=rival)
    inputs = problem.inputs(torch.Generator())
    inputs.args[0].copy_(X)
    call = TimedCall(inputs, output, None)
    found = judged_call(problem, call, rival, "normal", anew=False, right=True)
    assert (None if found is None else found.ok) is ok
    assert judged_call(problem, call, rival, "normal", anew=False) is not None, "the first one is judged in full"


def test_wrong_timed_calls_among_those_with_the_rivals_bits_are_found() -> None:
    calls = []

    def sometimes(x: torch.Tensor) -> torch.Tensor:
        calls.append(None)
        return x.square() * (1.0 if len(calls) < 60 or len(calls) % 2 else 1.01)

    problem = Custom((X,), against=same)
    one = compare(problem, sometimes, at_least=0.01, settings=SETTINGS)
    assert (one.verdict, one.reason) == (Verdict.WRONG, Reason.INACCURATE)
