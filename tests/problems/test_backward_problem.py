"""Forward and backward as one computation: results, gradients of arguments and of parameters are compared."""

from __future__ import annotations

import copy
import weakref
from typing import Any

import pytest

from perfsuite.case.comparison import Comparison
from perfsuite.case.run import compare
from perfsuite.outcome import Verdict
from perfsuite.problems import Custom, Inputs
from perfsuite.problems.backward import GradientError, with_gradients
from perfsuite.problems.differentiated import Differentiated, Plan, prepared
from perfsuite.settings import Settings

torch = pytest.importorskip("torch")


def norm(x: Any, weight: Any, eps: float = 1e-6) -> Any:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight


class Written(torch.autograd.Function):
    """The RMS norm with a backward written by hand; `fault` spoils one of its gradients."""

    fault = ""

    @classmethod
    def spoiled(cls, fault: str) -> Any:
        return type("Spoiled", (cls,), {"fault": fault}).apply

    @staticmethod
    def forward(context: Any, x: Any, weight: Any, eps: float = 1e-6) -> Any:
        scale = torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)
        context.save_for_backward(x, weight, scale)
        return x * scale * weight

    @classmethod
    def backward(cls, context: Any, given: Any) -> Any:
        x, weight, scale = context.saved_tensors
        unit = x * scale
        inner = given * weight
        by_x = scale * (inner - unit * (inner * unit).mean(-1, keepdim=True))
        by_weight = (given * unit).sum(0)
        if cls.fault == "weight":
            by_weight = by_weight[:1].expand_as(by_weight)
        elif cls.fault == "mean":
            by_x = scale * inner
        elif cls.fault == "ones":  # as if the output's gradient were ones
            by_x, by_weight = scale * (weight - unit * (weight * unit).mean(-1, keepdim=True)), unit.sum(0)
        return by_x, by_weight, None


def judged(candidate: Any, rival: Any, *args: Any, at_least: float | None = None, **kwargs: Any) -> Comparison:
    problem = Custom(args, kwargs, against=rival, label="norm")
    whole, both = with_gradients(problem, candidate)
    return compare(whole, both, at_least=at_least, settings=Settings(device="cpu", seed=0, seconds=0.02))


def arguments() -> tuple[Any, Any]:
    return torch.randn(24, 32, requires_grad=True), torch.rand(32, requires_grad=True)


def test_a_backward_written_by_hand_is_right_and_timed() -> None:
    found = judged(Written.apply, norm, *arguments(), at_least=0.001)
    assert found.verdict is not Verdict.WRONG, found.sentence
    assert found.rounds
    assert found.name == "norm with gradients float32[24x32] float32[32]"
    assert found.candidate.endswith("Written.apply")
    assert judged(Written.apply, norm, *arguments()).verdict is Verdict.MET


@pytest.mark.parametrize(
    ("fault", "path"),
    [("weight", '["gradient"]["args[1]"]'), ("mean", '["gradient"]["args[0]"]'), ("ones", '["gradient"]["args[0]"]')],
)
def test_a_wrong_gradient_is_named(fault: str, path: str) -> None:
    found = judged(Written.spoiled(fault), norm, *arguments())
    assert found.verdict is Verdict.WRONG
    assert path in found.sentence


def test_only_the_arguments_that_require_grad_have_gradients() -> None:
    x, weight = arguments()
    assert judged(Written.spoiled("weight"), norm, x, weight.detach()).verdict is Verdict.MET
    assert judged(Written.spoiled("mean"), norm, x.detach(), weight).verdict is Verdict.MET
    keyword = judged(lambda x, weight: Written.apply(x, weight), norm, x, weight=weight)
    assert keyword.verdict is Verdict.MET, keyword.sentence


def test_arguments_of_a_callable_keep_what_they_require() -> None:
    def make(generator: Any) -> Any:
        x = torch.randn(24, 32, generator=generator).requires_grad_()
        return x, torch.rand(32, generator=generator).requires_grad_()

    for candidate, verdict in ((Written.apply, Verdict.MET), (Written.spoiled("weight"), Verdict.WRONG)):
        whole, both = with_gradients(Custom(make, against=norm), candidate)
        found = compare(whole, both, settings=Settings(device="cpu", seed=0))
        assert found.verdict is verdict, found.sentence


class Network(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(16, 8)

    def forward(self, x: Any) -> Any:
        return {"out": torch.relu(self.linear(x)), "width": 8}


class Frozen(Network):
    """Its bias gets no gradient."""

    def forward(self, x: Any) -> Any:
        return {"out": torch.relu(x @ self.linear.weight.t() + self.linear.bias.detach()), "width": 8}


def test_gradients_of_parameters_are_compared_by_name() -> None:
    rival = Network()
    assert judged(copy.deepcopy(rival), rival, torch.randn(32, 16)).verdict is Verdict.MET
    frozen = Frozen()
    frozen.load_state_dict(rival.state_dict())
    found = judged(frozen, rival, torch.randn(32, 16))
    assert found.verdict is Verdict.WRONG
    assert '["gradient"]["linear.bias"]' in found.sentence


def test_what_cannot_be_differentiated_is_a_usage_error() -> None:
    x, weight = arguments()
    with pytest.raises(GradientError, match=r"no argument of norm requires grad.*x.requires_grad_\(\)"):
        judged(Written.apply, norm, x.detach(), weight.detach())
    with pytest.raises(GradientError, match="no result of norm requires grad"):
        judged(Written.apply, lambda x, weight: norm(x, weight).detach(), x, weight)
    found = judged(lambda x, weight: norm(x, weight).detach(), norm, x, weight)
    assert found.verdict is Verdict.WRONG
    assert "the result does not require grad: its backward is missing" in found.sentence


def test_a_prepared_forward_pass_is_freed_when_it_is_forgotten() -> None:
    """Its node holds its result through the hook; a result that holds its node in turn is never freed."""
    plan = Plan(frozenset({"args[0]"}), ("",), only=True)
    called = Differentiated(lambda x: x.exp(), plan)
    x = torch.randn(64)
    given = (x, {}, (torch.ones(64),))
    called.prepare(*given)
    kept = weakref.ref(called._ready[tuple(map(id, (x, given[2][0])))].result)
    called(*given)
    called.forget()
    assert kept() is None


@pytest.mark.parametrize(("only", "forwards"), [(True, 1), (False, 3)])
def test_what_a_backward_alone_takes_is_measured_without_its_forward_pass(only: bool, forwards: int) -> None:
    """Launches and memory of a call are those of what is timed."""
    ran = []

    def forward(x: Any) -> Any:
        ran.append(1)
        return x.exp()

    called = Differentiated(forward, Plan(frozenset({"args[0]"}), ("",), only=only))
    inputs = Inputs((torch.randn(64), {}, (torch.ones(64),)))
    ready = prepared(called, inputs)
    results = [inputs.call(ready)["gradient"]["args[0]"] for _ in range(3)]
    assert len(ran) == forwards
    assert all(torch.equal(one, inputs.args[0].exp()) for one in results)
    assert not called._ready, "others' forward passes are not touched"
