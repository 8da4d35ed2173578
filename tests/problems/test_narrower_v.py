"""The problem Attention with a v that has fewer columns than q and k: inputs, counts, rivals, answers, spellings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="inputs are tensors")

from perfsuite import Attention  # noqa: E402
from perfsuite.judge.problem_forms import task_of  # noqa: E402
from perfsuite.memory.model import attention_problem_bytes, saved_by_fusion  # noqa: E402
from perfsuite.oracle.check import check  # noqa: E402
from perfsuite.problems.distributions import DISTRIBUTIONS  # noqa: E402
from perfsuite.problems.tensors import map_tensors  # noqa: E402

CASES: dict[str, dict[str, Any]] = {
    "full": {},
    "causal": {"causal": True},
    "window": {"window": (9, 4)},
    "bottom right": {"causal": True, "bottom_right": True, "seq_kv": 41},
}
cases = pytest.mark.parametrize("case", CASES)
passes = pytest.mark.parametrize("backward", [False, "only", True], ids=str)


def problem(case: str, backward: bool | str = False) -> Attention:
    return Attention(2, 4, 23, 24, kv_heads=2, value_dim=16, dtype="float32", backward=backward, **CASES[case])


def by_definition(of: Attention, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    k, v = (tensor.repeat_interleave(2, 1) for tensor in (k, v))
    seen = of.visible(torch.arange(of.seq_q), torch.arange(of.keys))
    return (q @ k.mT * of.scaling).masked_fill(~seen, float("-inf")).softmax(-1) @ v


@cases
def test_inputs_and_the_right_answer(case: str) -> None:
    made = problem(case)
    given = made.inputs(torch.Generator().manual_seed(1))
    q, k, v = (tensor.double() for tensor in given.args)
    assert (q.shape, k.shape, v.shape) == ((2, 4, 23, 24), (2, 2, made.keys, 24), (2, 2, made.keys, 16))
    right = by_definition(made, q, k, v)
    torch.testing.assert_close(made.answer(given), right)
    torch.testing.assert_close(made.answer(given, rows=torch.tensor([0, 20])), right[:, :, [0, 20]])


@cases
@pytest.mark.parametrize("backward", ["only", True], ids=str)
def test_the_right_gradients(case: str, backward: bool | str) -> None:
    made = problem(case, backward)
    given = made.inputs(torch.Generator().manual_seed(1))
    *operands, _, (d_out,) = given.args
    assert d_out.shape == (2, 4, 23, 16)
    leaves = [tensor.double().requires_grad_() for tensor in operands]
    result = by_definition(made, *leaves)
    right = torch.autograd.grad(result, leaves, d_out.double())
    answer = made.answer(given)
    assert ("result" in answer) == (backward is True)
    if backward is True:
        torch.testing.assert_close(answer["result"], result.detach())
    for place, gradient in enumerate(right):
        torch.testing.assert_close(answer["gradient"][f"args[{place}]"], gradient)


@cases
@passes
@pytest.mark.parametrize("rival", ["sdpa", "sdpa:math"])
@pytest.mark.parametrize("distribution", ["normal", "dominant"])
def test_rivals_on_the_cpu_are_right(case: str, backward: bool | str, rival: str, distribution: str) -> None:
    made = problem(case, backward)
    given = made.inputs(torch.Generator().manual_seed(2), distribution=distribution)
    found = given.call(made.rival(rival))
    assert check(made, given, found, given.call(made.rival("sdpa"))).ok
    if distribution == "normal":
        worse = map_tensors(found, lambda one: 0.98 * one)
        assert not check(made, given, worse, given.call(made.rival("sdpa"))).ok


def test_flops_and_bytes() -> None:
    """A score has a product over 192 columns and one over 128; of a backward three over 192, two over 128."""
    made = Attention(1, 2, 64, 192, value_dim=128)
    scores = 2 * 64 * 64
    assert made.flops == 2.0 * scores * (192 + 128)
    assert replace(made, backward="only").flops == 2.0 * scores * (3 * 192 + 2 * 128)
    assert replace(made, backward=True).flops == 2.0 * scores * (4 * 192 + 3 * 128)
    assert made.bytes == 2 * 64 * (192 + 192 + 128 + 128) * 2
    # q, k, dq and dk; v, dv, the result and its gradient
    assert replace(made, backward="only").bytes == 2 * 64 * (4 * 192 + 4 * 128) * 2


def test_the_same_width_is_no_other_problem() -> None:
    plain = Attention(1, 2, 64, 192)
    assert Attention(1, 2, 64, 192, value_dim=192) == plain
    assert "value_dim" not in plain.params
    assert Attention(1, 2, 64, 192, value_dim=128).params["value_dim"] == 128
    # A marker that changes head_dim changes both.
    assert replace(plain, head_dim=129).columns == 129


@pytest.mark.parametrize("word", ["", "causal", "backward"])
def test_it_is_spelled_with_a_slash(word: str) -> None:
    words = ["bfloat16", *([word] if word else [])]
    made = Attention.parse("2x8/2x1/4096x192/128", words)
    assert (made.head_dim, made.value_dim, made.kv_heads, made.seq_kv) == (192, 128, 2, 4096)
    assert made.name == " ".join(["2x8/2x1/4096x192/128", *words])
    with pytest.raises(ValueError, match="value_dim is 256; it must be at most head_dim"):
        Attention.parse("2x8x4096x192/256", [])
    with pytest.raises(ValueError, match="such as 2x8x4096x64"):
        Attention.parse("2x8x4096x192/128/64", [])


def test_as_json_for_judging() -> None:
    given = {"family": "attention", "batch": 1, "heads": 2, "seq_q": 64, "head_dim": 192, "value_dim": 128}
    (workload,) = task_of(given).workloads
    assert workload.problem == Attention(1, 2, 64, 192, value_dim=128)


@passes
@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_every_distribution_fits(backward: bool | str, distribution: str) -> None:
    given = problem("causal", backward).inputs(torch.Generator().manual_seed(0), distribution=distribution)
    assert given.args[2].shape == (2, 2, 23, 16)


def test_memory() -> None:
    made = Attention(1, 2, 64, 192, value_dim=128)
    memory = attention_problem_bytes(made.params)
    assert (memory.inputs, memory.output) == (2 * 64 * (192 + 192 + 128) * 2, 2 * 64 * 128 * 2)
    assert saved_by_fusion("attention", made.params) is not None
