"""Results that hang on random numbers: equal generators where they can be had, else their distribution."""

from __future__ import annotations

import pytest

from perfsuite.case.run import compare
from perfsuite.oracle import check, examine
from perfsuite.oracle.chance import judge_by_distribution
from perfsuite.outcome import Reason, Verdict
from perfsuite.problems import Custom
from perfsuite.problems.base import Inputs
from perfsuite.settings import Settings

torch = pytest.importorskip("torch")
F = torch.nn.functional

OWN = torch.Generator("cpu").manual_seed(5)


def judge(candidate, rival):
    problem = Custom((torch.randn(64, 128),), against=rival)
    return examine(problem, candidate, torch.Generator("cpu").manual_seed(0), adversarial=False)


def dropped(x):
    return F.dropout(x.sigmoid(), 0.25)


def dropped_by_itself(x):
    keep = torch.rand(x.shape, generator=OWN) >= 0.25
    return x.sigmoid() * keep / 0.75


def test_an_honest_copy_draws_the_same_numbers() -> None:
    verdict = judge(lambda x: F.dropout(1 / (1 + torch.exp(-x)), 0.25), dropped)
    assert verdict.ok
    assert verdict.candidate_error < 1e-6


def test_other_generators_are_judged_by_the_distribution() -> None:
    verdict = judge(dropped_by_itself, dropped)
    assert verdict.ok
    assert "by the distribution of 40 results" in verdict.sentence
    assert judge(dropped, dropped_by_itself).ok


@pytest.mark.parametrize(
    "wrong",
    [
        lambda x: dropped_by_itself(x) * 0.75,
        lambda x: x.sigmoid(),
        lambda x: -dropped_by_itself(x),
        lambda x: torch.zeros_like(x),
        lambda x: dropped_by_itself(x).roll(1, -1),
        lambda x: F.dropout(x.sigmoid(), 0.5),
    ],
    ids=["not scaled", "nothing dropped", "sign", "zeros", "shifted", "another share"],
)
def test_another_distribution_is_wrong(wrong) -> None:
    verdict = judge(wrong, dropped)
    assert verdict.reason is Reason.INACCURATE
    assert "judged by the distribution of random results" in verdict.sentence


def test_a_right_result_is_hardly_ever_called_wrong() -> None:
    inputs = Inputs((torch.randn(64, 128),), {})
    verdicts = [judge_by_distribution(dropped, inputs, dropped(*inputs.args)) for _ in range(150)]
    assert [one.sentence for one in verdicts if not one.ok] == []  # of the first version, one in eighty


def test_timed_calls_of_random_kernels_are_judged_by_the_distribution() -> None:
    problem = Custom((torch.randn(64, 128),), against=dropped)
    inputs = problem.inputs(torch.Generator("cpu").manual_seed(0))
    verdict = check(problem, inputs, dropped(*inputs.args), dropped(*inputs.args))
    assert verdict.ok
    assert verdict.limit is None
    assert not check(problem, inputs, 2 * dropped(*inputs.args), dropped(*inputs.args)).ok
    one = compare(problem, dropped, against=dropped, settings=Settings(device="cpu", seconds=0.05))
    assert one.verdict is not Verdict.WRONG


def test_atomics_are_allowed_where_the_test_says_so() -> None:
    calls = []

    def varies(x):
        calls.append(1)
        return x.sin() * (1 + 2**-23 * (len(calls) % 2))

    problem = Custom((torch.randn(64, 128),), against=torch.sin)
    settings = Settings(device="cpu", seconds=0.05)
    assert compare(problem, varies, settings=settings).reason is Reason.NOT_DETERMINISTIC
    assert compare(problem, varies, deterministic=False, settings=settings).verdict is Verdict.MET
