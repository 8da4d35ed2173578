"""Backward passes of the families: exact gradients, names, costs, and what is timed of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from perfsuite import Attention, Gemm, Problem
from perfsuite.case.run import compare
from perfsuite.oracle import examine
from perfsuite.outcome import Verdict
from perfsuite.problems import exact_gradients
from perfsuite.problems.differentiated import Differentiated
from perfsuite.problems.tensors import leaves_in, map_tensors
from perfsuite.settings import Settings

ATTENTION = Attention(1, 4, 40, 16, kv_heads=2, dtype="float32")
PROBLEMS: list[Any] = [
    ATTENTION,
    replace(ATTENTION, causal=True, seq_kv=24),
    replace(ATTENTION, causal=True, bottom_right=True, seq_kv=24, scale=0.3),
    replace(ATTENTION, window=(6, 2)),
    Gemm(24, 20, 12, dtype="float32"),
    Gemm(24, 20, 12, dtype="float32", trans_a=True, trans_b=True, batch=3),
]


def settings() -> Settings:
    return Settings(seconds=0.1, device="cpu")


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda one: one.name)
@pytest.mark.parametrize("backward", [True, "only"])
def test_gradients_are_those_of_autograd_in_float64(problem: Any, backward: Any) -> None:
    one = replace(problem, backward=backward)
    inputs = map_tensors(one.inputs(torch.Generator().manual_seed(1)), torch.Tensor.double)
    found, expected = dict(leaves_in(one.reference(inputs))), dict(leaves_in(inputs.call(one.library())))
    assert found.keys() == expected.keys()
    assert len(found) == one.operands + (backward is True)
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("problem", PROBLEMS[:4], ids=lambda one: one.name)
@pytest.mark.parametrize("most", [1, 3, 64])
def test_gradients_do_not_depend_on_the_heads_and_queries_that_are_taken_at_once(
    problem: Any, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = replace(problem, batch=3, backward=True)
    inputs = one.inputs(torch.Generator().manual_seed(1))
    expected = dict(leaves_in(one.reference(inputs)))
    monkeypatch.setitem(exact_gradients.MOST_HEADS, "cpu", most)
    monkeypatch.setitem(exact_gradients.BLOCK_BYTES, "cpu", 4 * 8 * one.keys * 2 * 7 * most)
    monkeypatch.setattr(exact_gradients, "MASKED_ROWS", 7)
    for name, value in leaves_in(one.reference(inputs)):
        torch.testing.assert_close(value, expected[name], rtol=1e-12, atol=1e-14)


class Kernels(TorchDispatchMode):
    """Counts the calls that compute, or that fill memory."""

    count = 0

    def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += not (operator.is_view or "empty" in str(operator))
        return operator(*args, **(kwargs or {}))


@pytest.mark.parametrize("causal", [False, True])
def test_a_card_computes_the_gradients_of_many_small_heads_in_few_kernels(
    causal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = Attention(4, 16, 64, 16, causal=causal, dtype="bfloat16", backward="only")
    inputs = problem.inputs(torch.Generator().manual_seed(1))
    counts = []
    for most in (1, exact_gradients.MOST_HEADS["cuda"]):
        monkeypatch.setitem(exact_gradients.MOST_HEADS, "cpu", most)
        with Kernels() as kernels:
            problem.reference(inputs)
        counts.append(kernels.count)
    assert counts[1] <= 32
    assert counts[0] > 64 * 10


def test_names_words_and_costs() -> None:
    one = Attention(2, 8, 128, 64)
    for value, word, flops, size in (("only", "backward", 2.5, 2), (True, "forward-backward", 3.5, 3)):
        other = replace(one, backward=value)
        assert other.name == f"{one.name} {word}"
        assert other.params == one.params | {"backward": value}
        assert Attention.parse("2x8x128x64", [word]) == other
        assert (other.flops, other.bytes) == (flops * one.flops, size * one.bytes)
    assert "backward" not in one.params
    assert replace(Gemm(8, 4, 2), backward="only").flops == 2 * Gemm(8, 4, 2).flops
    with pytest.raises(ValueError, match="backward is 'twice'; it must be True, False or \"only\""):
        Attention(2, 8, 128, 64, backward="twice")


def scaled(gradient_of: int, factor: float) -> Callable[..., Any]:
    """SDPA, but one of its gradients is multiplied by a factor."""

    def attention(*operands: torch.Tensor, **options: Any) -> torch.Tensor:
        given = list(operands)
        given[gradient_of] = _Scaled.apply(given[gradient_of], factor)
        return torch.nn.functional.scaled_dot_product_attention(*given, **options)

    return attention


class _Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, factor: float) -> torch.Tensor:
        ctx.factor = factor
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:  # type: ignore[override]
        return gradient * ctx.factor, None


@pytest.mark.parametrize("operand", [0, 1, 2])
def test_a_gradient_that_is_a_little_off_is_wrong(operand: int) -> None:
    problem = Attention(1, 2, 32, 16, dtype="bfloat16", backward="only")
    one = compare(problem, scaled(operand, 0.98), settings=settings())
    assert one.verdict is Verdict.WRONG
    assert f"args[{operand}]" in one.sentence
    assert compare(problem, scaled(operand, 1.0), settings=settings()).verdict is Verdict.MET


def slow_forward(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    time.sleep(20e-3)
    return a @ b


def test_backward_alone_leaves_the_forward_pass_out_of_the_time() -> None:
    for backward, whole in (("only", False), (True, True)):
        problem: Problem = Gemm(64, 64, 64, dtype="float32", backward=backward)
        one = compare(problem, slow_forward, against="cublas", settings=settings())
        assert one.candidate_seconds is not None, one.sentence
        assert (one.candidate_seconds > 20e-3) is whole


def test_a_prepared_forward_pass_serves_its_own_tensors_alone() -> None:
    calls: list[int] = []

    def counted(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return a @ b

    problem = Gemm(6, 5, 4, dtype="float32", backward="only")
    function = problem.called(counted)
    assert isinstance(function, Differentiated)
    generator = torch.Generator().manual_seed(1)
    first, second = problem.inputs(generator), problem.inputs(generator)
    kept = function.prepare(*first.args)
    assert kept == 0, "what the backward reads are the arguments themselves"
    before = first.call(function)
    assert len(calls) == 1
    second.call(function)
    assert len(calls) == 2, "other tensors have a forward pass of their own"
    first.args[0].mul_(2.0)
    function.prepare(*first.args)
    after = first.call(function)
    torch.testing.assert_close(after["gradient"]["args[1]"], 2.0 * before["gradient"]["args[1]"])


HARD = [
    Attention(1, 4, 96, 64, kv_heads=2, dtype="bfloat16"),
    Attention(1, 2, 64, 64, dtype="float16", causal=True),
    Attention(1, 2, 64, 64, dtype="bfloat16", window=(8, 0)),
    Attention(1, 2, 48, 128, dtype="float16", causal=True, bottom_right=True, seq_kv=96),
    Gemm(96, 64, 64, dtype="bfloat16"),
]


@pytest.mark.parametrize("problem", HARD, ids=lambda one: one.name)
def test_no_gradient_vanishes_on_hard_inputs(problem: Any) -> None:
    """Else the library's rounding is all there is, and a right candidate cannot be told from a wrong one."""
    one = replace(problem, backward="only")
    for name in one.hard_distributions:
        inputs = one.inputs(torch.Generator().manual_seed(3), distribution=name)
        pairs = zip(leaves_in(inputs.call(one.library())), leaves_in(one.reference(inputs)), strict=True)
        for (path, got), (_, right) in pairs:
            assert float((got.double() - right).norm() / right.norm()) < 0.05, (name, path)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_softmax_without_its_maximum_has_wrong_gradients(dtype: str) -> None:
    def careless(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        weights = (q.float() @ k.float().mT / 8).exp()
        return (weights / weights.sum(-1, keepdim=True) @ v.float()).to(q.dtype)

    problem = Attention(1, 2, 64, 64, dtype=dtype, backward="only")
    found = examine(problem, problem.called(careless), torch.Generator().manual_seed(0))
    assert not found.ok
    assert "dominant" in found.sentence
