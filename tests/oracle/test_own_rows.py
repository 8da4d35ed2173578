"""A row in which every kernel is less exact has the library's own errors of that row as its limit; no other row has."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from perfsuite.oracle import Judgement, check
from perfsuite.problems import Custom, Inputs

LENGTH, HEAD_DIM, HEAVY = 128, 64, 17
WEIGHT, SMALLER = 0.8, 0.9


def gradient(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, d_out: torch.Tensor) -> torch.Tensor:
    """The gradient by q of softmax(q k^T / sqrt(head_dim)) v, in the dtype of its arguments; all (length, head_dim)."""
    weights = torch.softmax(q @ k.T / math.sqrt(HEAD_DIM), -1)
    d_weights = d_out @ v.T
    d_sum = (d_out * (weights @ v)).sum(-1, keepdim=True)
    return weights * (d_weights - d_sum) @ k / math.sqrt(HEAD_DIM)


def rounded(values: torch.Tensor) -> torch.Tensor:
    """Rounded to bfloat16, as a kernel does with what it multiplies or writes."""
    return values.bfloat16().float()


def kernel(lucky: float, dropped: tuple[int, int] | None = None) -> Callable[..., torch.Tensor]:
    """A kernel for bfloat16: it takes the sum of d_out and the rounded result, and rounds what it multiplies.

    lucky: what becomes of the error of that sum in the heavy row; 1.0 as it is, 0.0 gone as if by chance.
    dropped: (query, key) of a term that is left out.
    """

    def call(*args: torch.Tensor) -> torch.Tensor:
        q, k, v, d_out = (one.float() for one in args)
        weights = torch.softmax(q @ k.T / math.sqrt(HEAD_DIM), -1)
        exact_sum = (d_out * (weights @ v)).sum(-1, keepdim=True)
        off = (d_out * rounded(rounded(weights) @ v)).sum(-1, keepdim=True) - exact_sum
        off[HEAVY] *= lucky
        d_scores = rounded(weights * (d_out @ v.T - exact_sum - off))
        if dropped is not None:
            d_scores[dropped] = 0.0
        return (d_scores @ k / math.sqrt(HEAD_DIM)).bfloat16()

    return call


def heavy_inputs() -> Inputs:
    """Drawn values, but one query has most of its weight on one key, and its result hangs on a small difference."""
    drawn = torch.Generator().manual_seed(3)
    q, k, v, d_out = (torch.randn(LENGTH, HEAD_DIM, generator=drawn).bfloat16() for _ in range(4))
    others = math.log(LENGTH * math.exp(0.5) * WEIGHT / (1 - WEIGHT))
    q[HEAVY] = k[0] * others * math.sqrt(HEAD_DIM) / k[0].float().square().sum()
    result = torch.softmax(q[HEAVY].float() @ k.float().T / math.sqrt(HEAD_DIM), -1) @ v.float()
    apart = torch.nn.functional.normalize(v[0].float() - result, dim=0)
    d_out[HEAVY] -= SMALLER * (d_out[HEAVY].float() @ apart) * apart
    return Inputs((q, k, v, d_out))


def judged(mine: Callable[..., torch.Tensor], library: Callable[..., torch.Tensor]) -> tuple[Judgement, list[int]]:
    """The judgement of `mine`, and a list with one entry for each call of the library."""
    inputs = heavy_inputs()
    calls: list[int] = []

    def watched(*args: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        # As ever on the inputs themselves; on others its luck is another one.
        first = torch.equal(args[0], inputs.args[0])
        return (library if first else kernel(1.0))(*args)

    problem = Custom(inputs.args, reference=gradient, label="gradient by q")
    return check(problem, inputs, inputs.call(mine), rival=watched), calls


def test_a_row_in_which_the_library_was_lucky_accuses_nobody() -> None:
    found, calls = judged(kernel(1.0), kernel(0.0))
    assert found.ok, found.sentence
    assert len(calls) > 24, "the row had no limit of its own: the test shows nothing"


@pytest.mark.parametrize("times", [4.0, -4.0])
def test_an_error_that_the_library_never_makes_in_that_row_is_wrong(times: float) -> None:
    found, _ = judged(kernel(times), kernel(0.0))
    assert not found.ok
    assert f"row {HEAVY}" in found.sentence


@pytest.mark.parametrize("row", [0, 64, 127])
def test_one_term_left_out_of_an_ordinary_row_is_wrong(row: int) -> None:
    q, k = (one.double() for one in heavy_inputs().args[:2])
    weights = torch.softmax(q[row] @ k.T / math.sqrt(HEAD_DIM), -1)
    # A term of middling size: half of the others are larger.
    middle = int(weights.argsort()[LENGTH // 2])
    found, _ = judged(kernel(1.0, dropped=(row, middle)), kernel(0.0))
    assert not found.ok
    assert f"row {row} " in found.sentence


def test_a_kernel_that_is_off_in_many_rows_is_judged_without_more_calls() -> None:
    found, calls = judged(lambda *args: kernel(1.0)(*args) * 1.04, kernel(0.0))
    assert not found.ok
    assert len(calls) < 24
