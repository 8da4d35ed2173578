"""Which regime: the arithmetic on made-up evidence, variations of cases and functions, what the command says."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from perfsuite.analyze import regime_cases, workload
from perfsuite.analyze.regime import LEVERS, Evidence, Variation, elasticities, judge
from perfsuite.analyze.roofline import Ceiling, Cost
from perfsuite.analyze.workload import WorkloadError, change, of_function, of_problem
from perfsuite.cli.commands import regime
from perfsuite.cli.main import main
from perfsuite.cli.problem_specs import problem_if_named
from perfsuite.problems import Attention, Gemm

LOG2 = math.log(2.0)


def evidence(arithmetic: float = 0.0, bytes: float = 0.0, **changes: Any) -> Evidence:
    """A call of 100 us whose time follows its costs by these elasticities."""
    told = (Variation(LOG2, 0.0, arithmetic * LOG2), Variation(0.0, LOG2, bytes * LOG2))
    plain: dict[str, Any] = {"seconds": 100e-6, "host_seconds": 10e-6, "busy_seconds": 98e-6, "kernels": 1.0}
    return Evidence(**(plain | {"communication_seconds": 0.0, "variations": told} | changes))


@pytest.mark.parametrize(
    ("given", "regime"),
    [
        (evidence(0.95, 0.02), "compute"),
        (evidence(0.05, 1.0), "memory"),
        (evidence(0.02, 0.01), "overhead"),
        (evidence(0.5, 0.5), "unknown"),
        (evidence(0.1, 0.1, busy_seconds=20e-6, host_seconds=95e-6), "overhead"),
        (evidence(0.9, 0.1, communication_seconds=70e-6), "communication"),
        (evidence(0.9, 0.1, communication_seconds=20e-6), "compute"),
    ],
)
def test_the_regime_follows_from_what_costs_time(given: Evidence, regime: str) -> None:
    assert judge(given).regime == regime


def test_without_variations_the_roofline_stands_in() -> None:
    alone, ceiling = evidence(variations=()), Ceiling(1e15, 4e12)
    assert judge(alone).regime == "unknown"
    assert "arithmetic=1 and bytes=1" in judge(alone).sentence
    assert judge(alone, cost=Cost(1e9, 1e9), ceiling=ceiling).regime == "memory"
    assert judge(alone, cost=Cost(1e12, 1e9), ceiling=ceiling).regime == "compute"
    assert "250" in judge(alone, cost=Cost(1e12, 1e9), ceiling=ceiling).sentence


def test_what_was_varied_outweighs_the_roofline() -> None:
    assert judge(evidence(0.9, 0.0), cost=Cost(1.0, 1e9), ceiling=Ceiling(1e15, 4e12)).regime == "compute"


def test_elasticities_come_from_variations_that_change_both_costs() -> None:
    # Half the FLOPs on the same bytes, and the same FLOPs on twice the bytes, then both at once: T = F^0.7 B^0.3.
    mixed = [Variation(f * LOG2, b * LOG2, (0.7 * f + 0.3 * b) * LOG2) for f, b in ((-1, 0), (1, 1), (3, 2))]
    assert elasticities(mixed) == pytest.approx((0.7, 0.3))
    assert elasticities([Variation(LOG2, 0.0, 0.4 * LOG2)]) == (pytest.approx(0.4), None)
    assert elasticities([Variation(LOG2, LOG2, LOG2), Variation(2 * LOG2, 2 * LOG2, LOG2)]) == (None, None)
    assert elasticities([]) == (None, None)


def test_every_regime_that_is_found_has_levers() -> None:
    assert all(LEVERS[expected] for expected in regime_cases.MADE.values())
    assert set(regime_cases.MADE.values()) == {"compute", "memory", "overhead", "communication"}


@pytest.mark.parametrize(
    ("problem", "changes"),
    [
        (Gemm(512, 512, 512), [(0.5, 1.0), (1.0, 2.0)]),
        (Gemm(8, 4096, 4096, batch=2), [(0.5, 1.0), (1.0, 2.0)]),
        (Attention(2, 8, 1024, 64), [(0.5, 1.0), (1.0, 2.0)]),
        (Attention(2, 8, 1, 128, seq_kv=4096), [(2.0, 1.0), (2.0, 2.0)]),
    ],
)
def test_cases_vary_one_cost_with_the_other_held(problem: Any, changes: list[tuple[float, float]]) -> None:
    found = [(one.flops / problem.flops, one.bytes / problem.bytes) for one in problem.variations()]
    assert found == [pytest.approx(change, rel=0.01) for change in changes]
    workload = of_problem(problem, lambda one: print)
    assert workload.cost == Cost(problem.flops, problem.bytes)
    assert [change(one) for one in workload.variations] == [
        pytest.approx((math.log(f), math.log(b)), abs=0.01) for f, b in changes
    ]


@pytest.mark.parametrize(("backward", "passes"), [(False, 6), (True, 6), ("only", 2)])
def test_of_backward_alone_the_forward_pass_runs_once_for_each_set(
    backward: bool | str, passes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = Attention(1, 2, 16, 8, dtype="float32", backward=backward)
    sets = [problem.inputs(torch.Generator().manual_seed(seed)) for seed in (1, 2)]
    monkeypatch.setattr(workload, "_rotation", lambda problem: sets)
    calls: list[int] = []

    def candidate(*operands: torch.Tensor, **options: Any) -> torch.Tensor:
        calls.append(1)
        return torch.nn.functional.scaled_dot_product_attention(*operands, **options)

    call = of_problem(problem, lambda one: candidate).build()
    found = [call() for _ in range(6)]
    assert len(calls) == passes
    if backward:
        first, second, third = (one["gradient"]["args[1]"] for one in found[:3])
        assert torch.equal(first, third)
        assert not torch.equal(first, second)


def test_functions_vary_by_their_parameters() -> None:
    def layer(arithmetic: float = 1.0, bytes: float = 1.0) -> Any:
        return lambda: (arithmetic, bytes)

    base = of_function(layer, "layer")
    assert base.build()() == (1.0, 1.0)
    assert [(one.arithmetic, one.bytes, one.build()()) for one in base.variations] == [
        (2.0, 1.0, (2.0, 1.0)),
        (1.0, 2.0, (1.0, 2.0)),
    ]


def test_a_function_that_returns_no_function_is_the_call() -> None:
    calls: list[int] = []
    call = of_function(lambda: calls.append(1), "plain").build()
    call()
    call()
    assert len(calls) == 3, "once to see what it returns, then at every call"
    assert of_function(lambda: 1, "plain").variations == ()


def test_a_function_that_needs_arguments_is_refused() -> None:
    with pytest.raises(WorkloadError, match="takes x, y; name a function without arguments"):
        of_function(lambda x, y, z=1: None, "my:function")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("gemm:64x32x16", Gemm(64, 32, 16)),
        ("gemm 64x32x16 float32", Gemm(64, 32, 16, dtype="float32")),
        ("attention:2x8x512x64:bf16:causal", Attention(2, 8, 512, 64, dtype="bfloat16", causal=True)),
        ("attention 2x8/2x1/512x64 float16", Attention(2, 8, 1, 64, kv_heads=2, seq_kv=512)),
        ("my_module:function", None),
    ],
)
def test_cases_are_read(text: str, problem: Any) -> None:
    assert problem_if_named(text) == problem


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["gemm:64x64"], "it must be m x n x k"),
        (["gemm:64x64xfew"], "the shape is '64x64xfew'"),
        (["gemm:64x64x64:causal"], "'causal' is not known"),
        (["attention:2x8x512"], "it must be batch x heads x length x head_dim"),
        (["attention:2x8/3x512x64"], "kv_heads is 3; it must divide heads"),
        (["gemm:64x64x64", "--candidate", "sdpa"], "the libraries for gemm are cublas"),
        (["gemm:64x64x64", "--candidate", "no_such_module:f"], "no_such_module cannot be imported"),
        (["nothing"], "is no case and no function"),
        (["json:dumps"], "takes obj"),
        (["json:JSONEncoder", "--candidate", "cublas"], "a function by itself"),
        ([], "name one workload"),
        (["json:JSONEncoder", "--self-test"], "name one workload"),
        (["json:JSONEncoder", "--gpus", "0"], "at least 1"),
        (["json:JSONEncoder", "--flops", "1e9"], "belong together"),
        (["json:JSONEncoder", "--flops", "1e9", "--bytes", "-1"], "must be a positive number"),
    ],
)
def test_bad_input_is_named(command: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["regime", *command]) == 2
    told = capsys.readouterr()
    assert said in told.err
    assert told.out == ""


def test_without_a_card_it_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert main(["regime", "json:JSONEncoder"]) == 2
    assert "a GPU is needed, and " in capsys.readouterr().err


def test_the_finding_is_printed_with_its_levers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(regime, "cards", lambda at_least=1: ())
    monkeypatch.setattr(regime, "measure", lambda workload, tell: evidence(0.05, 0.98))
    assert main(["regime", "gemm:8x4096x4096", "--candidate", "cublas"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(
        "gemm 8x4096x4096 float16: memory bound\n  arithmetic x2 costs +4% time, bytes x2 costs +97%"
    )
    assert "lever: quantisation" in printed
    assert main(["regime", "gemm:8x4096x4096", "--candidate", "cublas", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["regime"], told["bytes"], told["seconds"]) == ("memory", pytest.approx(0.98), 100e-6)
    monkeypatch.setattr(regime, "measure", lambda workload, tell: evidence(0.5, 0.5))
    assert main(["regime", "gemm:8x4096x4096", "--candidate", "cublas"]) == 20


@pytest.mark.gpu
def test_the_made_cases_are_recognised(tmp_path: Path, gpu: Any, capsys: pytest.CaptureFixture[str]) -> None:
    from perfsuite.analyze.regime_measured import measure

    for name, expected in regime_cases.MADE.items():
        if name not in regime_cases.NEEDS_SEVERAL_GPUS:
            finding = judge(measure(of_function(getattr(regime_cases, name), name)))
            assert finding.regime == expected, f"{name}: {finding.sentence}"
