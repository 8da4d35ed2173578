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


def test_an_element_that_is_dropped_for_the_first_time_is_no_fault() -> None:
    def with_first_rows(kept: bool, count: int):
        def call(x):
            mask = torch.rand(x.shape) >= 0.25
            mask.view(-1)[:count] = kept
            return x.sigmoid() * mask / 0.75

        return call

    # All 40 results of the library keep these elements by chance; one of 8,192 does so about every time.
    inputs = Inputs((torch.randn(64, 128),), {})
    for count, right in ((1, True), (4, True), (400, False)):
        mine = with_first_rows(False, count)(*inputs.args)
        found = judge_by_distribution(with_first_rows(True, count), inputs, mine)
        assert found.ok is right, (count, found.sentence)


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


@pytest.mark.parametrize("size", [1.0, 5e37], ids=["of size one", "whose differences float32 does not hold"])
def test_values_of_any_size_are_told_from_their_negatives(size) -> None:
    inputs = Inputs((torch.randn(64, 128).sign() * size,), {})

    def drawn(x):
        return x * (1 + torch.rand_like(x))  # up to 1e38: two of unlike sign are apart by 2e38, and four by 4e38

    assert judge_by_distribution(lambda x: 2 * drawn(x), inputs, 2 * drawn(*inputs.args)).ok
    assert not judge_by_distribution(lambda x: 2 * drawn(x), inputs, -2 * drawn(*inputs.args)).ok


def test_a_judged_result_waits_for_the_device_a_few_times(monkeypatch) -> None:
    waits = []
    for name in ("item", "tolist", "__float__", "__bool__", "cpu"):
        real = getattr(torch.Tensor, name)
        monkeypatch.setattr(torch.Tensor, name, lambda self, *_, real=real: waits.append(real) or real(self))
    inputs = Inputs((torch.randn(64, 128),), {})
    assert judge_by_distribution(dropped, inputs, dropped(*inputs.args)).ok
    assert len(waits) < 40  # there were 360
