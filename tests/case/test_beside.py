"""The rival beside the candidate: strides of results, and settings of precision, where they differ."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from perfsuite.case import beside
from perfsuite.case.comparison import Comparison
from perfsuite.case.run import compare
from perfsuite.outcome import Verdict
from perfsuite.problems import Custom
from perfsuite.problems.rivals.cublas import equal_precision
from perfsuite.record.case import case_record
from perfsuite.settings import Settings

FACTS = dict.fromkeys(("commit", "dirty", "gpu", "torch", "cuda", "driver")) | {"harness": "3"}
SETTINGS = Settings(device="cpu", seconds=0.2)
Function = Callable[..., Any]


def gated(candidate: Function, rival: Function, *args: Any) -> Comparison:
    problem = Custom(args=args, label="made", against=rival)
    return compare(problem, candidate, against=rival, at_least=0.001, settings=SETTINGS)


def with_tf32(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    matmul = torch.backends.cuda.matmul
    before = matmul.fp32_precision
    matmul.fp32_precision = "tf32"
    try:
        return a @ b
    finally:
        matmul.fp32_precision = before


def test_the_record_names_tf32_where_one_side_alone_has_it() -> None:
    pair = torch.randn(16, 16), torch.randn(16, 16)
    one = gated(torch.mm, with_tf32, *pair)
    assert one.verdict is Verdict.MET
    before = torch.backends.cuda.matmul.fp32_precision
    name = "precision of float32 on cuda, matmul"
    assert f"{name} is tf32 in the rival's call, {before} in the candidate's" in one.rival_differs
    assert case_record(one, test=None, fingerprint=FACTS).as_json()["rival_differs"] == [*one.rival_differs]
    other = gated(with_tf32, torch.mm, *pair)
    assert other.verdict is Verdict.MET
    assert f"{name} is {before} in the rival's call, tf32 in the candidate's" in other.rival_differs
    assert gated(with_tf32, with_tf32, *pair).rival_differs == ()
    assert torch.backends.cuda.matmul.fp32_precision == before


def test_a_library_at_equal_precision_says_so_beside_a_candidate_with_tf32() -> None:
    def equal(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        with equal_precision(torch.float32):  # as the rival "cublas" does on a card
            return a @ b

    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        one = gated(torch.mm, equal, torch.randn(16, 16), torch.randn(16, 16))
    finally:
        torch.backends.cuda.matmul.allow_tf32 = False
    assert "float32 matmul precision is highest in the rival's call, high in the candidate's" in one.rival_differs


def test_the_record_names_strides_where_they_differ() -> None:
    one = gated(lambda x: (x * 2).t().contiguous().t(), lambda x: x * 2, torch.randn(8, 4))
    assert one.verdict is Verdict.MET
    assert one.rival_differs == ("the result has strides (4, 1) from the rival, (1, 8) from the candidate",)


@pytest.mark.parametrize(
    ("mine", "rivals", "said"),
    [
        (torch.ones(3, 1), torch.ones(1, 3).t(), 0),  # a dimension of one element has no step
        (torch.ones(0, 4), torch.ones(4, 0).t(), 0),
        ([torch.ones(2, 3), 1.0], [torch.ones(3, 2).t(), 1.0], 1),
        (torch.ones(2, 3).to_sparse(), torch.ones(2, 3).to_sparse(), 0),
        (tuple(torch.ones(2, 3) for _ in range(9)), tuple(torch.ones(3, 2).t() for _ in range(9)), 4),
    ],
)
def test_strides_that_say_something_are_told(mine: Any, rivals: Any, said: int) -> None:
    inputs = Custom(args=(torch.ones(2),), label="made").inputs(torch.Generator())
    assert len(beside.differences(beside.both(lambda x: mine, lambda x: rivals, inputs))) == said


def test_a_call_that_no_mode_can_watch_is_no_fault() -> None:
    def refuses(x: torch.Tensor) -> torch.Tensor:
        if torch._C._len_torch_dispatch_stack():
            raise RuntimeError("no modes here")
        return x + 1

    inputs = Custom(args=(torch.ones(2),), label="x").inputs(torch.Generator())
    assert beside.differences(beside.both(refuses, torch.neg, inputs)) == []
