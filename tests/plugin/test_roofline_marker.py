"""The markers roofline_target and alignment: shares of made-up times, their outcomes, and what they are on a card."""

from __future__ import annotations

import pytest

from perfsuite.analyze import resources
from perfsuite.problems import Attention, Custom, Gemm

from .conftest import Suite

KERNELS = """
from perfsuite import Attention

FLOPS = 4 * 2 * 8 * 1024 * 1024 * 64.0

def even(): return "MET", 1.0
even.attainable_flops = lambda problem: 1e15
even.seconds = lambda problem: problem.flops / 0.7e15

def trapped(): return "MET", 1.0
trapped.attainable_flops = lambda problem: 1e15
trapped.seconds = lambda problem: problem.flops / (0.5e15 if problem.head_dim % 8 == 0 else 0.2e15)

@pytest.mark.roofline_target(at_least=0.6)
@pytest.mark.alignment(dim=65)
@pytest.mark.parametrize("candidate", [even, trapped], ids=["even", "trapped"])
def test_it(candidate, perf): perf(Attention(2, 8, 1024, 64), candidate)
"""


def test_each_is_a_case(suite: Suite) -> None:
    suite.write(KERNELS)
    outcome = suite.run("--gpu")
    assert outcome.code == 1
    assert outcome.junit == {"test_it[even]": "passed", "test_it[trapped]": "failed"}
    found = {(case["candidate"], case["aspect"]): (case["verdict"], case["reason"]) for case in outcome.cases}
    assert found == {
        ("kernels.even", None): ("MET", "checked"),
        ("kernels.even", "roofline"): ("MET", "checked"),
        ("kernels.even", "alignment"): ("MET", "checked"),
        ("kernels.trapped", None): ("MET", "checked"),
        ("kernels.trapped", "roofline"): ("MISSED", "too-slow"),
        ("kernels.trapped", "alignment"): ("MISSED", "too-slow"),
    }
    outcome.has(
        "50.0% of the attainable 1000 TFLOPS at 512 FLOPs a byte (large copy), at least 60.0% asked",
        "a FLOP takes +150% time at head_dim 65 against 64",
        "at most +20% allowed",
    )
    [even, trapped] = [case["measured"] for case in outcome.cases if case["aspect"] == "alignment"]
    assert even["drop"] == pytest.approx(0.0)
    assert trapped["drop"] == pytest.approx(1.5)


def test_the_slope_is_that_of_a_copy_or_of_a_read(suite: Suite) -> None:
    suite.write(
        KERNELS.replace("at_least=0.6", 'at_least=0.6, bandwidth="read"').replace("=65", "=65, max_drop=2.0")
        + "even.attainable_flops_reading = lambda problem: 1.4e15\n"
        + "trapped.attainable_flops_reading = lambda problem: 0.8e15\n"
    )
    outcome = suite.run("--gpu")
    assert outcome.junit == {"test_it[even]": "failed", "test_it[trapped]": "passed"}
    outcome.has("50.0% of the attainable 1400 TFLOPS at 512 FLOPs a byte (large read), at least 60.0% asked")


def test_the_slope_is_that_of_the_fastest_read_of_as_many_bytes(suite: Suite) -> None:
    suite.write(
        COSTS.replace("COST", "bytes=2e9").replace("at_least=0.5", 'at_least=0.5, bandwidth="own_size"')
        + "met.attainable_flops_of_own_size = lambda problem: problem.bytes * 1250\n"
    )
    [case] = [case for case in suite.run("--gpu").cases if case["aspect"] == "roofline"]
    assert case["sentence"].startswith("80.0% of the attainable 2.5 TB/s (fastest read of 2000 MB), at least 50.0%")


def test_their_numbers_can_be_overridden(suite: Suite) -> None:
    suite.write(KERNELS)
    (suite.path / "perf_targets.toml").write_text(
        "['Fake H200']\n'*trapped]' = { roofline_target = { at_least = 0.4 }, alignment = { max_drop = 2.0 } }\n"
    )
    assert suite.run("--gpu").code == 0


@pytest.mark.parametrize(
    ("marker", "sentence"),
    [
        ("roofline_target", "@pytest.mark.roofline_target needs at_least"),
        ("roofline_target(at_least=60)", "at_least is 60; it must be a share over 0 and at most 1"),
        ("roofline_target(at_least=1, bandwidth='l2')", "bandwidth is 'l2'; allowed are 'copy', 'read', 'own_size'"),
        (
            "roofline_target(at_least=1, bandwidth={'copy'})",
            "bandwidth is {'copy'}; allowed are 'copy', 'read', 'own_size'",
        ),
        ("alignment(max_drop=0.1)", "@pytest.mark.alignment needs dim"),
        ("alignment(dim=0)", "dim is 0; it must be a whole number of elements, at least 1"),
        ("alignment(dim=129, max_drop=-1)", "max_drop is -1; it must be a number over 0"),
    ],
)
def test_bad_arguments_are_collection_errors(suite: Suite, marker: str, sentence: str) -> None:
    suite.write(f"@pytest.mark.{marker}\ndef test_it(perf): pass\n")
    outcome = suite.run()
    assert outcome.code == 2
    outcome.has(sentence)


COSTS = """
met.seconds, met.attainable_flops = lambda problem: 1e-3, lambda problem: 4e12
@pytest.mark.roofline_target(at_least=0.5)
def test_it(perf): perf(met, args=(1,), against=met, COST)
"""


def test_what_has_neither_flops_nor_bytes_has_no_roof(suite: Suite) -> None:
    suite.write(COSTS.replace("COST", "label='none'"))
    suite.run("--gpu").has("roofline_target needs FLOPs or bytes of a call, but")


@pytest.mark.parametrize(
    ("cost", "code", "sentence"),
    [
        ("bytes=3e9", 0, "75.0% of the attainable 4 TB/s (large copy), at least 50.0% asked: 1000 us"),
        ("bytes=1e9", 1, "25.0% of the attainable 4 TB/s (large copy), at least 50.0% asked: 1000 us"),
        ("flops=3e9", 0, "75.0% of the attainable 4 TFLOPS of a product, at least 50.0% asked: 1000 us"),
        (
            "flops=3e9, bytes=1e9",
            0,
            "75.0% of the attainable 4 TFLOPS at 3 FLOPs a byte (large copy), at least 50.0% asked",
        ),
    ],
)
def test_flops_or_bytes_alone_have_a_roof(suite: Suite, cost: str, code: int, sentence: str) -> None:
    suite.write(COSTS.replace("COST", cost))
    outcome = suite.run("--gpu")
    assert outcome.code == code
    [case] = [case for case in outcome.cases if case["aspect"] == "roofline"]
    assert sentence in case["sentence"]
    assert ("attainable_bytes" in case["measured"]) == ("flops" not in cost)


def test_the_innermost_size_is_changed() -> None:
    assert resources.at_dim(Attention(1, 2, 128, 64), 65) == ("head_dim", Attention(1, 2, 128, 65))
    assert resources.at_dim(Gemm(8, 16, 32), 33) == ("k", Gemm(8, 16, 33))
    with pytest.raises(ValueError, match="custom has no innermost dimension"):
        resources.at_dim(Custom(args=(1,)), 3)


@pytest.mark.gpu
def test_on_a_card(gpu: object) -> None:
    import torch

    problem = Gemm(4096, 4096, 4096)
    seconds = resources.seconds(problem, torch.mm)
    attainable = resources.attainable_flops(problem, torch.mm)
    assert problem.flops is not None
    assert 0.7 < problem.flops / seconds / attainable < 1.3
    few = Gemm(1, 8192, 8192)
    assert 0.8 < resources.attainable_flops_reading(few, torch.mm) / resources.attainable_flops(few, torch.mm) < 1.3

    # PyTorch's own trap: head_dim 129 against 128.
    wide = Attention(16, 16, 2048, 128)
    odd = Attention(16, 16, 2048, 129)
    taken = resources.side_by_side(wide, odd, wide.rival("sdpa"))
    assert taken[1] / taken[0] * wide.flops / odd.flops > 1.2
