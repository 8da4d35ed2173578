"""Modules whose calls change their buffers, which are restored where results depend on them; faults are still found."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from perfsuite.case.comparison import Comparison
from perfsuite.case.module_state import RESTORED, reset_of_buffers
from perfsuite.case.run import compare
from perfsuite.outcome import Verdict
from perfsuite.problems import Custom
from perfsuite.settings import Settings


class Averaged(nn.Module):
    """Takes a running mean off its input."""

    def __init__(self, share: float = 0.1, noise: float = 0.0) -> None:
        super().__init__()
        self.share, self.noise = share, noise
        self.mean: torch.Tensor
        self.register_buffer("mean", torch.zeros(16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.mean.lerp_(x.mean(0), self.share)
        return x - self.mean + self.noise * torch.rand(16)


def gated(candidate: nn.Module, rival: nn.Module, at_least: float | None = 0.001) -> Comparison:
    settings = Settings(device="cpu", seconds=0.05)
    problem = Custom(args=(torch.randn(8, 16),), label="made", against=rival)
    return compare(problem, candidate, against=rival if at_least else None, at_least=at_least, settings=settings)


@pytest.mark.parametrize("at_least", [0.001, None], ids=["timed", "checked"])
def test_an_honest_module_is_right_whatever_its_earlier_calls_left(at_least: float | None) -> None:
    one = gated(Averaged(), Averaged(), at_least)
    assert one.verdict is Verdict.MET, one.sentence
    assert RESTORED in one.warnings


def test_another_update_is_wrong() -> None:
    one = gated(Averaged(0.11), Averaged())
    assert one.verdict is Verdict.WRONG
    assert one.reason == "inaccurate"


@pytest.mark.parametrize(
    ("rival", "needed"),
    [
        (Averaged(), True),
        (nn.BatchNorm1d(16).train(), False),  # no result of a call in training mode depends on them
        (nn.BatchNorm1d(16).eval(), False),
        (nn.Linear(16, 16), False),
        (torch.neg, False),
        (Averaged(noise=1.0), True),  # the generators of torch begin anew
    ],
)
def test_buffers_are_restored_where_results_depend_on_them(rival: Any, needed: bool) -> None:
    problem = Custom(args=(torch.randn(8, 16),), label="made", against=rival)
    before = {name: value.clone() for name, value in rival.state_dict().items()} if isinstance(rival, nn.Module) else {}
    state = torch.get_rng_state()
    reset = reset_of_buffers(rival, rival, problem, lambda: problem.inputs(torch.Generator().manual_seed(0)))
    assert (reset is not None) == needed
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(rival.state_dict()[name], value) for name, value in before.items())
