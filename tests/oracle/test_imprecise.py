"""Rivals that float64 does not reach: honest candidates pass, imprecise ones are not told, wrong ones are wrong."""

from __future__ import annotations

import numpy as np
import pytest

from perfsuite.case.run import compare
from perfsuite.oracle import examine
from perfsuite.outcome import Reason, Verdict
from perfsuite.problems import Custom
from perfsuite.settings import Settings

torch = pytest.importorskip("torch")


def foreign(x):
    """A softmax by code that torch does not see, in float32."""
    values = x.numpy()
    powers = np.exp(values - values.max(-1, keepdims=True))
    return torch.from_numpy(powers / powers.sum(-1, keepdims=True))


def judge(candidate, rival=foreign):
    problem = Custom((torch.randn(64, 256),), against=rival)
    return examine(problem, candidate, torch.Generator("cpu").manual_seed(0))


def test_an_honest_candidate_passes_and_the_sentence_says_what_is_missing() -> None:
    verdict = judge(lambda x: x.softmax(-1))
    assert verdict.ok
    assert "float64 cannot be had (code outside of torch" in verdict.sentence


def test_an_imprecise_candidate_is_undecided() -> None:
    def rounded(x):
        return x.softmax(-1).bfloat16().float()

    assert judge(rounded).reason is Reason.REFERENCE_IMPRECISE
    problem = Custom((torch.randn(64, 256),), against=foreign)
    one = compare(problem, rounded, correctness=True, settings=Settings(device="cpu", seconds=0.05))
    assert (one.verdict, one.reason) == (Verdict.UNDECIDED, Reason.REFERENCE_IMPRECISE)
    assert "when its inputs change by one unit in the last place" in one.sentence
    assert "pass reference=" in one.sentence


def test_with_a_reference_the_same_candidate_is_wrong() -> None:
    problem = Custom((torch.randn(64, 256),), against=foreign, reference=lambda x: x.softmax(-1))
    generator = torch.Generator("cpu").manual_seed(0)
    assert examine(problem, lambda x: x.softmax(-1), generator).ok
    assert examine(problem, lambda x: x.softmax(-1).bfloat16().float(), generator).reason is Reason.INACCURATE


@pytest.mark.parametrize("wrong", [torch.zeros_like, lambda x: -x.softmax(-1), lambda x: x.softmax(0)])
def test_what_no_rounding_explains_is_wrong(wrong) -> None:
    assert judge(wrong).reason is Reason.INACCURATE


def test_a_rival_that_runs_under_no_mode_still_gets_a_verdict() -> None:
    from torch.utils._python_dispatch import _get_current_dispatch_mode

    def touchy(x):
        if _get_current_dispatch_mode() is not None:
            raise RuntimeError("no modes")
        return x.sin()

    verdict = judge(torch.sin, touchy)
    assert verdict.ok
    assert "the rival itself (RuntimeError: no modes)" in verdict.sentence


def test_a_module_in_half_precision_needs_no_reference() -> None:
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.SiLU(), torch.nn.Linear(128, 32)).bfloat16()
    problem = Custom((torch.randn(48, 64).bfloat16(),), against=module)
    generator = torch.Generator("cpu").manual_seed(0)

    def without_bias(x):
        return torch.nn.functional.linear(module[1](module[0](x)), module[2].weight)

    assert examine(problem, lambda x: module(x), generator).ok
    assert examine(problem, without_bias, generator).reason is Reason.INACCURATE


def test_a_rival_in_float64_sets_a_tolerance_by_its_own_sensitivity() -> None:
    """Nothing wider stands behind float64: the right answer is the rival's own, and its error is 0."""
    problem = Custom((torch.randn(2048, 512, dtype=torch.float64),), against=lambda x: x.softmax(-1))

    def by_hand(x: torch.Tensor) -> torch.Tensor:
        powers = (x - x.amax(-1, keepdim=True)).exp()
        return powers / powers.sum(-1, keepdim=True)

    found = {
        name: examine(problem, candidate, torch.Generator("cpu").manual_seed(0))
        for name, candidate in {
            "by hand": by_hand,
            "in float32": lambda x: x.float().softmax(-1).double(),
            "a little off": lambda x: x.softmax(-1) * (1 + 1e-13),
        }.items()
    }
    assert found["by hand"].ok, found["by hand"].sentence
    assert found["in float32"].reason is found["a little off"].reason is Reason.INACCURATE
