"""The fixtures: on a card what they say is so, without one they skip or fail closed, and `perf` refuses nonsense."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import pytest

from .conftest import Suite

if TYPE_CHECKING:
    import torch

    from perfsuite.pytest_plugin.facts import Gpu, MemoryUse

USERS = """
def test_gpu(gpu): pass
def test_memory(gpu_memory): pass
def test_rng(gpu_rng): pass
def test_several(gpus): pass
def test_perf(perf): pass
def test_late(request): request.getfixturevalue("perf")
"""


def test_without_the_flag_they_skip(suite: Suite) -> None:
    suite.write(USERS)
    outcome = suite.run("-rs")
    assert (outcome.code, set(outcome.junit.values())) == (0, {"skipped"})
    outcome.has("needs a GPU: run pytest --gpu")


def test_without_a_card_they_fail_closed(suite: Suite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_CARDS", "0")
    suite.write(USERS)
    outcome = suite.run("--gpu")
    assert outcome.code == 21
    assert [kind for name, kind in outcome.junit.items() if name != "test_late"] == ["error"] * 5
    assert outcome.junit["test_late"] == "failed"


def test_several_cards_are_needed_for_gpus(suite: Suite) -> None:
    suite.write("def test_several(gpus): pass")
    suite.run("--gpu", "-rs").has("needs at least two GPUs; this process may use 1")


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        ("perf()", "it was given 0 arguments"),
        ("perf(1, 2, 3)", "it was given 3 arguments"),
        ("perf(met)", "perf(candidate) needs args=..."),
        ("perf(met, args=1)", "args is int; it must be a tuple of arguments"),
        ("perf(Gemm(8, 8, 8), 'gemm')", "the candidate is 'gemm'; it must be callable"),
        ("perf(met, Gemm(8, 8, 8))", "takes an instance of a subclass of perfsuite.Problem first"),
        ("perf(Gemm(8, 8, 8), met, args=(1,), flops=2)", "perf(problem, candidate) takes no args, flops"),
        ("perf(met, args=(1,), against='no.such.thing')", "against is 'no.such.thing', and there is no such function"),
        ("perf(met, args=(1,), against='sys.maxsize')", "the rival is"),
        ("perf(Gemm(8, 8, 8), met, against='sdpa')", "two rivals: the marker perf_target(against='cublas')"),
    ],
)
def test_perf_names_what_does_not_fit(suite: Suite, call: str, sentence: str) -> None:
    suite.write(f"@TARGET\ndef test_it(perf): {call}")
    outcome = suite.run("--gpu")
    assert outcome.code == 1
    outcome.has(sentence)


def test_a_lone_candidate_becomes_a_problem_of_its_own(suite: Suite) -> None:
    suite.write(
        "@pytest.mark.perf_target(at_least=0.5)\n"
        "def test_it(perf): perf(met, args=(1, 'x'), kwargs={'deep': True}, against=max, flops=10, label='top')\n"
        "@pytest.mark.perf_target(at_least=0.5)\n"
        "def test_named(perf): perf(met, args=(1,), against='builtins.min')\n"
    )
    outcome = suite.run("--gpu")
    assert outcome.code == 0, outcome.out
    assert [(case["family"], case["name"], case["rival"]) for case in outcome.cases] == [
        ("custom", "top", "max"),
        ("custom", "met", "min"),
    ]
    assert outcome.cases[0]["params"]["deep"] is True


def test_a_lone_candidates_rival_is_named_once(suite: Suite) -> None:
    suite.write(
        "@pytest.mark.perf_target(against=max, at_least=0.5)\n"
        "@pytest.mark.perf_target(against=min, at_least=0.5)\n"
        "def test_both(perf):\n    perf(met, args=(1,))\n    perf(met, args=(1,), against=min)\n"
        "@pytest.mark.perf_target(against=max, at_least=0.5)\n"
        "def test_two(perf): perf(met, args=(1,), against=min)\n"
    )
    outcome = suite.run("--gpu")
    assert outcome.junit == {"test_both": "passed", "test_two": "failed"}
    assert [case["rival"] for case in outcome.cases] == ["max", "max", "min", "min"]
    outcome.has("two rivals: the marker perf_target(against=<built-in function max>)")


def test_a_rival_of_the_call_serves_markers_that_name_none(suite: Suite) -> None:
    suite.write(
        "@pytest.mark.perf_target(at_least=0.5)\ndef test_it(perf): perf(Gemm(8, 8, 8), met, against='cublas:other')"
    )
    assert [case["rival"] for case in suite.run("--gpu").cases] == ["cublas:other"]


@pytest.mark.gpu
def test_gpu_tells_the_facts(gpu: Gpu) -> None:
    import torch

    assert gpu.name == torch.cuda.get_device_name(gpu.device)
    assert gpu.capability == torch.cuda.get_device_capability(gpu.device)
    assert gpu.memory_bytes > gpu.l2_bytes > 2**20
    assert gpu.multiprocessors > 0
    # No card since Ampere is slower, none up to Blackwell faster.
    assert 1e11 < gpu.copy_bytes_a_second < 2e13
    assert 1e13 < gpu.product_flops_a_second("float16") < 1e16


@pytest.mark.gpu
def test_gpu_rng_is_seeded_by_the_test(gpu_rng: torch.Generator, request: pytest.FixtureRequest) -> None:
    import torch

    assert gpu_rng.device.type == "cuda"
    again = torch.Generator(device="cuda").manual_seed(gpu_rng.initial_seed())
    assert torch.equal(torch.rand(8, device="cuda", generator=gpu_rng), torch.rand(8, device="cuda", generator=again))


@pytest.mark.gpu
def test_gpu_memory_tells_peak_and_leak(gpu_memory: Callable[[], AbstractContextManager[MemoryUse]]) -> None:
    import torch

    with gpu_memory() as use:
        kept = torch.empty(2**20, dtype=torch.uint8, device="cuda")
        passing = torch.empty(2**22, dtype=torch.uint8, device="cuda")
        del passing
    assert (use.peak_bytes, use.leaked_bytes) == (2**20 + 2**22, kept.numel())
