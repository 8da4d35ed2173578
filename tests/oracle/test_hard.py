"""Hard inputs of any kernel: careless candidates are caught, honest ones pass, and nonsense is left out."""

from __future__ import annotations

import pytest

from perfsuite.case.run import compare
from perfsuite.oracle import examine
from perfsuite.oracle.hard import finite
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


def in_groups(x):
    parts = x.view(64, 8, 32)
    centred = parts - parts.mean(-1, keepdim=True)
    return (centred * (centred.square().mean(-1, keepdim=True) + 1e-5).rsqrt()).view(64, 256)


def in_groups_in_one_pass(x):
    return one_pass_norm(x.view(64, 8, 32)).view(64, 256)


def over_the_batch(x):
    centred = x - x.mean(0)
    return centred * (centred.square().mean(0) + 1e-5).rsqrt()


def deviation(x):
    return (x - x.mean(-1, keepdim=True)).square().mean(-1).sqrt()


def logsumexp(x):
    most = x.amax(-1, keepdim=True)
    return (x - most).exp().sum(-1).log() + most.squeeze(-1)


def distance(x, y):
    return (x.unsqueeze(1) - y.unsqueeze(0)).square().sum(-1)


def distance_by_products(x, y):
    return x.square().sum(-1, keepdim=True) + y.square().sum(-1) - 2 * x @ y.t()


Y = torch.randn(40, 256, generator=torch.Generator().manual_seed(1))
CANCELLING = {
    "layer norm": ((X,), lambda x: F.layer_norm(x, (256,)), layer_norm, one_pass_norm),
    "group norm": ((X,), lambda x: F.group_norm(x, 8), in_groups, in_groups_in_one_pass),
    "batch norm": (
        (X,),
        lambda x: F.batch_norm(x, None, None, training=True),
        over_the_batch,
        lambda x: (x - x.mean(0)) * (x.square().mean(0) - x.mean(0).square() + 1e-5).rsqrt(),
    ),
    "deviation": (
        (X,),
        lambda x: x.std(-1, correction=0),
        deviation,
        lambda x: (x.square().mean(-1) - x.mean(-1).square()).clamp(min=0).sqrt(),
    ),
    "softmax": ((X,), lambda x: x.softmax(-1), softmax, lambda x: x.exp() / x.exp().sum(-1, keepdim=True)),
    "logsumexp": ((X,), lambda x: x.logsumexp(-1), logsumexp, lambda x: x.exp().sum(-1).log()),
    "squared distance": ((X, Y), distance, lambda x, y: distance(y, x).t(), distance_by_products),
    "nearest": (
        (X, Y),
        lambda x, y: distance(x, y).amin(-1),
        lambda x, y: distance(y, x).amin(0),
        lambda x, y: distance_by_products(x, y).amin(-1),
    ),
    "distance": (
        (X, Y),
        lambda x, y: torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist"),
        lambda x, y: distance(x, y).sqrt(),
        lambda x, y: distance_by_products(x, y).clamp(min=0).sqrt(),
    ),
}


@pytest.mark.parametrize("name", CANCELLING)
def test_differences_of_large_numbers_are_wrong_where_the_rival_is_stable(name) -> None:
    args, rival, stable, careless = CANCELLING[name]
    found = judge(rival, stable, *args)
    assert found.ok, found.sentence
    verdict = judge(rival, careless, *args)
    assert not verdict.ok
    assert verdict.sentence.startswith("on hard inputs (")


@pytest.mark.parametrize("name", ["offset", "clusters"])
def test_values_far_from_zero_find_a_cancellation_by_themselves(name, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Custom, "hard_inputs", lambda self: (name,))
    for case in ("layer norm", "squared distance" if name == "offset" else "nearest"):
        args, rival, stable, careless = CANCELLING[case]
        assert judge(rival, stable, *args).ok
        assert judge(rival, careless, *args).sentence.startswith(f"on hard inputs ({name})")


def test_a_rival_that_cancels_too_accuses_nobody() -> None:
    assert judge(one_pass_norm, lambda x: one_pass_norm(x.clone()), X).ok
    assert judge(distance_by_products, lambda x, y: distance_by_products(y, x).t(), X, Y).ok
    assert judge(one_pass_norm, layer_norm, X).ok


def test_points_of_one_space_are_moved_together_and_shares_stay() -> None:
    far = Custom((X, Y, torch.rand(64, 256), torch.randn(256)), against=distance)
    x, y, shares, weight = far.inputs(torch.Generator(), distribution="offset").args
    assert (x - 256).abs().max() < 20
    assert (y - 256).abs().max() < 20
    assert 0 <= shares.min() < shares.max() <= 1
    assert weight.abs().max() < 20
    x, y, *_ = far.inputs(torch.Generator(), distribution="clusters").args
    assert (x - x.mean(-1, keepdim=True)).abs().max() < 20
    assert 4 <= len({round(float(one) / 64) for one in torch.cat([x, y]).mean(-1)}) <= 6


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


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.float8_e4m3fn, torch.float8_e5m2]
)
def test_one_value_that_is_not_finite_is_seen(dtype) -> None:
    values = torch.full((40, 30), torch.finfo(dtype).max, dtype=torch.float64)
    assert finite((values.to(dtype), torch.zeros(0, dtype=dtype), torch.arange(3)))
    for bad in (torch.nan, torch.inf, -torch.inf):
        if dtype is torch.float8_e4m3fn and bad is not torch.nan:
            continue  # it has no infinity
        values[17, 3] = bad
        assert not finite((torch.ones(2), values.to(dtype)))
