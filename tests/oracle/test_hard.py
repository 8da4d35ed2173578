"""Hard inputs of any kernel: careless candidates are caught, honest ones pass, and nonsense is left out."""

from __future__ import annotations

import pytest

from perfsuite.case.run import compare
from perfsuite.oracle import examine
from perfsuite.outcome import Reason, Verdict
from perfsuite.problems import Custom
from perfsuite.settings import Settings

torch = pytest.importorskip("torch")
F = torch.nn.functional

X = torch.randn(64, 256, generator=torch.Generator().manual_seed(0))
INDEX = torch.randint(0, 64, (40,), generator=torch.Generator().manual_seed(0))


def judge(rival, candidate, *args):
    return examine(Custom(args or (X,), against=rival), candidate, torch.Generator("cpu").manual_seed(0))


def softmax(x):
    powers = (x - x.amax(-1, keepdim=True)).exp()
    return powers / powers.sum(-1, keepdim=True)


def layer_norm(x):
    centred = x - x.mean(-1, keepdim=True)
    return centred * (centred.square().mean(-1, keepdim=True) + 1e-5).rsqrt()


def one_pass_norm(x):
    mean = x.mean(-1, keepdim=True)
    return (x - mean) * (x.square().mean(-1, keepdim=True) - mean.square() + 1e-5).rsqrt()


HONEST = {
    "softmax": (lambda x: x.softmax(-1), softmax),
    "layer norm": (lambda x: F.layer_norm(x, (256,)), layer_norm),
    "layer norm in one pass": (lambda x: F.layer_norm(x, (256,)), one_pass_norm),
    "relu": (F.relu, lambda x: x.clamp(min=0)),
    "variance": (lambda x: x.var(-1), lambda x: (x - x.mean(-1, keepdim=True)).square().sum(-1) / 255),
    "order": (lambda x: x.argsort(-1), lambda x: 255 - x.flip(-1).argsort(-1)),
    "logarithm": (lambda x: x.square().log(), lambda x: 2 * x.abs().log()),
}


@pytest.mark.parametrize("name", HONEST)
def test_honest_kernels_pass(name) -> None:
    rival, candidate = HONEST[name]
    assert judge(rival, candidate).ok


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_honest_products_in_16_bits_pass(dtype) -> None:
    weight = torch.randn(256, 64).to(dtype)
    assert judge(lambda x: x @ weight, lambda x: (x.float() @ weight.float()).to(dtype), X.to(dtype)).ok


CARELESS = {
    "no maximum": (lambda x: x.softmax(-1), lambda x: x.exp() / x.exp().sum(-1, keepdim=True)),
    "no maximum in a sum": (lambda x: x.logsumexp(-1), lambda x: x.exp().sum(-1).log()),
    "a maximum from zero": (lambda x: x.amax(-1), lambda x: x.amax(-1).clamp(min=0)),
    "a clamp beyond ordinary values": (lambda x: x * 2, lambda x: (x * 2).clamp(-20, 20)),
    "an absolute tolerance": (lambda x: x * 3, lambda x: torch.where(x.abs() < 2e-6, 0.0, x * 3)),
}


@pytest.mark.parametrize("name", CARELESS)
def test_careless_kernels_are_wrong(name) -> None:
    rival, candidate = CARELESS[name]
    verdict = judge(rival, candidate)
    assert not verdict.ok
    assert verdict.sentence.startswith("on hard inputs (")


def test_indices_are_drawn_anew_within_their_range() -> None:
    assert judge(lambda x, i: x[i], lambda x, i: x.index_select(0, i), X, INDEX).ok
    verdict = judge(lambda x, i: x[i], lambda x, i: x[INDEX], X, INDEX)
    assert verdict.sentence.startswith("on hard inputs (integers)")
    order = torch.randperm(64)
    assert judge(lambda x, i: torch.empty_like(x).index_copy_(0, i, x), lambda x, i: x[i.argsort()], X, order).ok
    ends = torch.tensor([0, 3, 17, 17, 64])

    def sums(x, ends):
        return torch.stack([x[a:b].sum(0) for a, b in zip(ends.tolist(), ends.tolist()[1:], strict=False)])

    assert judge(sums, sums, X, ends).ok


def test_inputs_on_which_the_rival_fails_judge_nobody() -> None:
    def fussy(x):
        if x.abs().max() > 20:
            raise ValueError("too large")
        return x.sin()

    assert judge(fussy, fussy).ok
    assert judge(fussy, lambda x: x.clamp(-20, 20).sin()).ok


def test_large_inputs_that_overflow_are_tried_less_large() -> None:
    careless = judge(lambda x: x.exp(), lambda x: x.clamp(-8, 8).exp())
    assert careless.sentence.startswith("on hard inputs (")


def test_inputs_without_time_for_them_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perfsuite.oracle.hard.SECONDS", -1.0)
    problem = Custom((torch.randn(8, 8),), against=torch.sin, label="sine")
    one = compare(problem, torch.sin, settings=Settings(seconds=0.05, device="cpu"))
    assert one.verdict is Verdict.MET
    assert any(said.startswith("there was no time to check these hard inputs: large, ") for said in one.warnings)


def test_positive_values_stay_positive_and_shares_between_0_and_1() -> None:
    shares = torch.rand(64, 16)
    inputs = [
        Custom((shares, shares + 3), against=torch.add).inputs(torch.Generator(), distribution=name)
        for name in ("normal", "dominant", "large", "ties")
    ]
    for one in inputs:
        assert (one.args[0] >= 0).all()
        assert (one.args[1] >= 0).all()
    assert inputs[0].args[0].max() <= 1
    target = torch.rand(64, 16)
    assert judge(F.binary_cross_entropy, F.binary_cross_entropy, shares, target).ok


def test_other_sizes_where_the_arguments_take_them() -> None:
    def made(generator, near):
        return (torch.randn(near(64), near(48), generator=generator),)

    def listed(x):
        return x.sum(-1) if x.shape == (64, 48) else x.sum(-1) + 1

    def refuses(x):
        if x.shape != (64, 48):
            raise ValueError("only 64x48")
        return x.sum(-1)

    def judged(candidate):
        problem = Custom(made, against=lambda x: x.sum(-1))
        return examine(problem, candidate, torch.Generator("cpu").manual_seed(0))

    assert judged(lambda x: x.sum(-1)).ok
    assert judged(refuses).ok
    assert judged(listed).sentence.startswith("at other sizes: ")
    assert judged(listed).reason in (Reason.INACCURATE, Reason.BAD_SHAPE)
