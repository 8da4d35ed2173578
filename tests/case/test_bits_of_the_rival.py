"""A result with the rival's bits is right without a right answer; any other result is compared with one."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from perfsuite.case.run import compare
from perfsuite.case.timed_inputs import judged_call, timed_inputs
from perfsuite.clock.base import TimedCall
from perfsuite.oracle import examine
from perfsuite.outcome import Reason, Verdict
from perfsuite.problems import Custom
from perfsuite.problems.redraw import MILDER
from perfsuite.settings import Settings

SETTINGS = Settings(device="cpu", seconds=0.05)
X = torch.randn(64, 80, generator=torch.Generator().manual_seed(1))


class Counted:
    """The right answer, which counts how often it is asked for."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        self.asked += 1
        return x.double().square()


def rival(x: torch.Tensor) -> torch.Tensor:
    return x.square()


def rounded(x: torch.Tensor) -> torch.Tensor:
    """The rival's result, one unit off: right, and other bits."""
    return x.square() * (1 + 2**-23)


def asked(candidate: Any, *, at_least: float | None = None) -> int:
    answer = Counted()
    problem = Custom((X,), against=rival, reference=answer)
    one = compare(problem, candidate, at_least=at_least, settings=SETTINGS)
    assert one.verdict is Verdict.MET, one.sentence
    return answer.asked


def test_hard_inputs_need_a_right_answer_only_for_other_bits_than_the_rivals() -> None:
    problem = Custom((X,), against=rival)
    same, other = (examine(problem, one, torch.Generator().manual_seed(0)).hard for one in (rival, rounded))
    assert same.keys() == other.keys()
    assert set(other.values()) == {True}
    assert {name for name, right in same.items() if right is None} == same.keys() - MILDER.keys()
    assert asked(rival) <= asked(rounded) - len(other) + len(MILDER)


def test_of_timed_calls_with_the_rivals_bits_one_on_ordinary_inputs_is_judged() -> None:
    same, other = (asked(one, at_least=0.01) - asked(one) for one in (rival, rounded))
    # Besides that one, right answers for the hard inputs on which nobody knew whether the rival is right.
    assert same <= 1 + 3
    assert other >= same + 2


def test_a_rival_that_is_wrong_on_hard_inputs_does_not_choose_them() -> None:
    def careless(x: torch.Tensor) -> torch.Tensor:
        return x.square() * (3.0 if bool((x <= 0).all()) else 1.0)

    problem = Custom((X,), against=careless, reference=lambda x: x.double().square())
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
    answer = Counted()
    problem = Custom((X,), against=rival, reference=answer)
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

    problem = Custom((X,), against=rival)
    one = compare(problem, sometimes, at_least=0.01, settings=SETTINGS)
    assert (one.verdict, one.reason) == (Verdict.WRONG, Reason.INACCURATE)
