"""Modules with one state are checked with other parameters than the given ones."""

from __future__ import annotations

import copy
import functools
from typing import Any

import pytest

from perfsuite.case.comparison import Comparison
from perfsuite.case.run import compare
from perfsuite.outcome import Verdict
from perfsuite.problems import Custom
from perfsuite.problems.modules import module_of, unlike
from perfsuite.settings import Settings

torch = pytest.importorskip("torch")


class Network(torch.nn.Module):
    """A linear layer without a bias to speak of, and a batch norm that nobody has trained."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = torch.nn.Linear(16, 16), torch.nn.BatchNorm1d(16)
        torch.nn.init.zeros_(self.linear.bias)
        self.register_buffer("mask", torch.tril(torch.ones(16, 16)))

    def forward(self, x: Any) -> Any:
        return self.norm(self.linear(x)) @ self.mask


class WithoutBias(Network):
    def forward(self, x: Any) -> Any:
        return self.norm(x @ self.linear.weight.t()) @ self.mask


class WithoutStatistics(Network):
    def forward(self, x: Any) -> Any:
        return self.linear(x) / (1 + self.norm.eps) ** 0.5 @ self.mask


class OwnMask(Network):
    """Honest: it knows that the mask is triangular."""

    def forward(self, x: Any) -> Any:
        return self.norm(self.linear(x)) @ torch.ones(16, 16).tril()


class Packed(Network):
    """Honest: it keeps its weights transposed as well."""

    def pack(self) -> Packed:
        self.turned = self.linear.weight.detach().t().contiguous()
        return self

    def forward(self, x: Any) -> Any:
        return self.norm(x @ self.turned + self.linear.bias) @ self.mask


def judged(candidate: Any, rival: Any) -> Comparison:
    problem = Custom((torch.randn(32, 16),), against=rival, label="module")
    return compare(problem, candidate, settings=Settings(device="cpu", seed=0))


def like(rival: Network, kind: type[Network]) -> Network:
    made = kind().eval()
    made.load_state_dict(rival.state_dict())
    return made


@pytest.mark.parametrize("kind", [Network, OwnMask])
def test_an_honest_module_is_right_and_keeps_its_parameters(kind: type[Network]) -> None:
    rival = Network().eval()
    candidate = like(rival, kind)
    before = copy.deepcopy(rival.state_dict())
    found = judged(candidate, rival)
    assert found.verdict is Verdict.MET, found.sentence
    assert not found.warnings
    for module in (candidate, rival):
        assert all(torch.equal(value, before[key]) for key, value in module.state_dict().items())


@pytest.mark.parametrize("kind", [WithoutBias, WithoutStatistics])
def test_what_the_given_parameters_hide_is_found(kind: type[Network]) -> None:
    rival = Network().eval()
    for candidate in (like(rival, kind), like(rival, kind).forward, functools.partial(like(rival, kind))):
        found = judged(candidate, rival)
        assert found.verdict is Verdict.WRONG
        assert found.sentence.startswith("with other parameters than the given ones: ")
        # As functions they would pass: the bias is zero, and the statistics are those of no training.
        assert judged(lambda x, candidate=candidate: candidate(x), rival).verdict is Verdict.MET


def test_a_module_that_packs_its_weights_is_judged_with_the_given_ones() -> None:
    rival = Network().eval()
    found = judged(like(rival, Packed).pack(), rival)
    assert found.verdict is Verdict.MET, found.sentence
    assert found.warnings == ("the given parameters alone were checked: the sides differ in turned",)
    assert unlike(rival, torch.nn.Linear(16, 8)) == [
        *("bias", "linear.bias", "linear.weight", "mask", "norm.bias", "norm.num_batches_tracked"),
        *("norm.running_mean", "norm.running_var", "norm.weight", "weight"),
    ]


def test_the_module_behind_a_callable() -> None:
    module = Network()
    for found in (module, module.forward, functools.partial(module, 1), torch.compile(module)):
        assert module_of(found) is module
    assert module_of(torch.mm) is None
    assert module_of(lambda x: module(x)) is None
