"""Arguments that calls write: found, part of the answer, restored before every sample; and state that is reset."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from perfsuite.case.comparison import Comparison
from perfsuite.case.run import compare
from perfsuite.outcome import Reason, Verdict
from perfsuite.problems import Custom
from perfsuite.problems.base import Inputs
from perfsuite.problems.written import places_of, written, written_by
from perfsuite.settings import Settings

PORTABLE = Settings(device="cpu", seconds=0.05)
X, Y = torch.randn(48, 48), torch.randn(48, 48)


def judged(candidate: Callable[..., Any], rival: Callable[..., Any], *args: Any, **options: Any) -> Comparison:
    problem = Custom(args or (X, Y), against=rival, label="writes", **options)
    return compare(problem, candidate, against=rival, at_least=1e-4, settings=PORTABLE)


def add_(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x.add_(y)


def in_place(x: torch.Tensor, y: torch.Tensor) -> None:
    x += y


def one_more(x: torch.Tensor, y: torch.Tensor) -> None:
    x += y
    y += 1.0


def forgets(x: torch.Tensor, y: torch.Tensor) -> None:
    x[:-1] += y[:-1]


def does_nothing(x: torch.Tensor, y: torch.Tensor) -> None:
    pass


def test_a_written_argument_that_is_returned_as_another_object_is_no_further_result() -> None:
    """As the result of a captured call is: a tensor over the argument's memory."""
    x = torch.randn(4, 5)
    inputs = Inputs((x, Y))
    both = written([0], inputs, add_)
    again = torch.from_numpy(x.numpy())
    assert again is not x
    assert list(both.answer(again, inputs)) == ["x"]
    assert list(both.answer(again[1:], inputs)) == ["x", "result"]


@pytest.mark.parametrize("rival", [add_, in_place])
@pytest.mark.parametrize("candidate", [add_, in_place])
def test_what_both_write_is_the_answer_returned_or_not(candidate: Any, rival: Any) -> None:
    found = judged(candidate, rival)
    assert found.verdict is Verdict.MET, found.sentence
    assert found.clock_note == "x: written, restored before every sample; it may be in the cache then"
    assert found.sentence.endswith(f"; host clock: {found.clock_note}")
    assert found.candidate_error is not None


@pytest.mark.parametrize(
    ("candidate", "reason"),
    [
        (one_more, Reason.INPUTS_CHANGED),
        (forgets, Reason.INACCURATE),
        (does_nothing, Reason.INACCURATE),
        (torch.add, Reason.INACCURATE),
    ],
)
def test_what_only_one_side_writes_is_wrong(candidate: Any, reason: Reason) -> None:
    found = judged(candidate, in_place)
    assert found.verdict is Verdict.WRONG
    assert found.reason in (reason, Reason.BAD_TYPE, Reason.BAD_SHAPE)


def test_a_kernel_that_writes_where_the_rival_does_not_is_wrong() -> None:
    assert judged(in_place, torch.add).reason is Reason.INPUTS_CHANGED


def test_an_argument_out_is_part_of_the_answer() -> None:
    def into(x: torch.Tensor, y: torch.Tensor, out: torch.Tensor) -> None:
        out.copy_(x @ y)

    def rival(x: torch.Tensor, y: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        return torch.mm(x, y, out=out)

    assert judged(into, rival, X, Y, torch.empty(48, 48)).verdict is Verdict.MET


def test_a_result_beside_a_written_cache_is_judged_and_so_is_the_cache() -> None:
    def step(cache: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
        cache[7] = new
        return cache.sum(0)

    def lazy(cache: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
        return cache.sum(0) - cache[7] + new

    args = (torch.randn(64, 32), torch.randn(32))
    assert judged(step, step, *args).verdict is Verdict.MET
    found = judged(lazy, step, *args)
    assert (found.verdict, found.reason) == (Verdict.WRONG, Reason.INACCURATE)


def test_a_reference_may_return_what_the_kernel_writes() -> None:
    found = judged(in_place, in_place, reference=lambda x, y: x + y)
    assert found.verdict is Verdict.MET, found.sentence


def test_a_kernel_that_is_right_on_untouched_arguments_only_is_found_in_timed_calls() -> None:
    calls = [0]

    def tires(x: torch.Tensor, y: torch.Tensor) -> None:
        calls[0] += 1
        x += y if calls[0] < 12 else 0.0

    found = judged(tires, in_place)
    assert found.verdict is Verdict.WRONG
    assert "in a timed call" in found.sentence


def test_the_right_answer_too_comes_from_the_state_that_a_reset_leaves() -> None:
    mine, theirs = torch.zeros(256, 256), torch.zeros(256, 256)

    def reset(inputs: Inputs) -> None:
        mine.zero_()
        theirs.zero_()

    def rival(x: torch.Tensor) -> torch.Tensor:
        return torch.add(theirs, x, out=theirs).clone()

    def half(x: torch.Tensor) -> torch.Tensor:
        return mine.add_(x).mul(0.5)

    options = {"reset": reset, "calls_per_reset": 1}
    found = judged(lambda x: mine.add_(x).clone(), rival, torch.randn(256, 256), **options)
    assert found.verdict is Verdict.MET, found.sentence
    assert found.candidate_error is not None
    assert found.candidate_error < 1e-6
    assert judged(half, rival, torch.randn(256, 256), **options).reason is Reason.INACCURATE


def test_reset_comes_before_every_sample_and_bounds_its_calls() -> None:
    state = {"used": 0, "most": 0, "resets": 0}

    def reset(inputs: Inputs) -> None:
        assert inputs.args[0].shape == (48, 48)
        state["used"] = 0
        state["resets"] += 1

    def counts(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        state["used"] += 1
        state["most"] = max(state["most"], state["used"])
        return x + y

    found = judged(counts, torch.add, reset=reset, calls_per_reset=2)
    assert found.verdict is Verdict.MET, found.sentence
    assert found.launches <= 2
    assert state["resets"] > 10
    assert state["most"] <= 2


def test_names_of_written_arguments() -> None:
    inputs = Inputs((X, {"a": X.clone(), "b": Y}), {"out": torch.empty(48, 48)})

    def writes(x: torch.Tensor, both: Any, out: torch.Tensor) -> None:
        both["b"].zero_()
        out.fill_(1.0)

    places = written_by(writes, inputs)
    assert written(places, inputs, writes).names == ("both[1]", "out")
    assert places_of(("x", "out"), inputs, writes) == [0, 3]
    assert places_of((1,), inputs, writes) == [1, 2]
    with pytest.raises(ValueError, match="writes names 'z'; allowed are the arguments 'x', 'both', 'out'"):
        places_of(("z",), inputs, writes)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"writes": "x"}, "writes is 'x'; it must be a tuple"),
        ({"calls_per_reset": 2}, "it needs reset="),
        ({"reset": 3}, "reset is 3; it must be a callable"),
    ],
)
def test_bad_values_are_told(options: Any, says: str) -> None:
    with pytest.raises(TypeError, match=says):
        Custom((X,), **options)
