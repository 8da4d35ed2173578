"""Limits on memory, launches and waiting: cases of their own, with the same outcomes; and what they are on a card."""

from __future__ import annotations

import pytest

from perfsuite.analyze import resources
from perfsuite.problems import Attention, Gemm

from .conftest import Suite

FRUGAL = """
from perfsuite import Attention

def frugal(): return "MET", 1.0
frugal.peak_bytes = lambda problem: 1024.0 * problem.seq_q
frugal.launches = lambda problem: 2.0
frugal.synchronises = lambda problem: 0.0

def greedy(): return "MET", 1.0
greedy.peak_bytes = lambda problem: 4.0 * problem.seq_q ** 2
greedy.launches = lambda problem: 3.0
greedy.synchronises = lambda problem: 1.0

@pytest.mark.memory_target(peak_bytes=2**20, growth="linear")
@pytest.mark.launches(at_most=2)
@pytest.mark.no_sync
@pytest.mark.parametrize("candidate", [frugal, greedy], ids=["frugal", "greedy"])
def test_it(candidate, perf): perf(Attention(1, 1, 1024, 64), candidate)
"""


def test_each_limit_is_a_case(suite: Suite) -> None:
    suite.write(FRUGAL)
    outcome = suite.run("--gpu")
    assert outcome.code == 1
    assert outcome.junit == {"test_it[frugal]": "passed", "test_it[greedy]": "failed"}
    found = {(case["candidate"], case["aspect"]): (case["verdict"], case["reason"]) for case in outcome.cases}
    assert found == {
        ("kernels.frugal", None): ("MET", "checked"),
        ("kernels.frugal", "memory"): ("MET", "checked"),
        ("kernels.frugal", "growth"): ("MET", "checked"),
        ("kernels.frugal", "launches"): ("MET", "checked"),
        ("kernels.frugal", "no_sync"): ("MET", "checked"),
        ("kernels.greedy", None): ("MET", "checked"),
        ("kernels.greedy", "memory"): ("MISSED", "too-much-memory"),
        ("kernels.greedy", "growth"): ("MISSED", "too-much-memory"),
        ("kernels.greedy", "launches"): ("MISSED", "too-many-launches"),
        ("kernels.greedy", "no_sync"): ("MISSED", "synchronises"),
    }
    outcome.has(
        "4 MiB at once, at most 1 MiB allowed",
        "memory grows with power 2.00 of the sequence length (4 MiB, then 16 MiB at twice the length), linear asked",
        "3 kernel launches a call, at most 2 allowed",
        "the call waits for the device",
        "(growth)",
    )


def test_their_numbers_can_be_overridden(suite: Suite) -> None:
    suite.write(FRUGAL)
    (suite.path / "perf_targets.toml").write_text(
        "['Fake H200']\n'*greedy]' = { memory_target = { peak_bytes = 4194304 }, launches = { at_most = 3 } }\n"
    )
    cases = suite.run("--gpu").cases
    met = {case["aspect"] for case in cases if case["candidate"] == "kernels.greedy" and case["verdict"] == "MET"}
    assert met == {None, "memory", "launches"}


def test_they_are_a_cards_affair(suite: Suite) -> None:
    suite.write(FRUGAL)
    outcome = suite.run("--perf-portable")
    assert outcome.code == 0
    assert [case["aspect"] for case in outcome.cases] == [None, None]
    outcome.has("warning: memory_target is looked at on a GPU only", "warning: launches is looked at on a GPU only")
    assert all("memory_target is looked at on a GPU only" in case["warnings"] for case in outcome.cases)


def test_what_calls_leave_behind_is_limited(suite: Suite) -> None:
    suite.write(
        "met.leaked_bytes = lambda problem: 0.0\n"
        "def leaks(): return 'MET', 1.0\nleaks.leaked_bytes = lambda problem: 2.0**21\n"
        "@pytest.mark.memory_target(leaked_bytes=0)\n"
        "@pytest.mark.parametrize('candidate', [met, leaks], ids=['met', 'leaks'])\n"
        "def test_it(candidate, perf): perf(Gemm(8, 8, 8), candidate)"
    )
    outcome = suite.run("--gpu")
    assert outcome.junit == {"test_it[met]": "passed", "test_it[leaks]": "failed"}
    outcome.has("eight calls leave 2 MiB behind, at most 0 B allowed")


def test_growth_needs_a_sequence(suite: Suite) -> None:
    suite.write(
        "met.peak_bytes = lambda problem: 8.0\n"
        "@pytest.mark.memory_target(growth='linear')\ndef test_it(perf): perf(Gemm(8, 8, 8), met)"
    )
    suite.run("--gpu").has("growth needs a problem with a sequence length, such as Attention; gemm")


@pytest.mark.parametrize(
    ("marker", "sentence"),
    [
        ("memory_target", "@pytest.mark.memory_target: needs peak_bytes, growth, leaked_bytes or several"),
        ("memory_target(peak_bytes='1 GB')", "peak_bytes is '1 GB'; it must be a number of bytes over 0"),
        ("memory_target(growth='cubic')", "growth is 'cubic'; allowed are 'linear' and 'quadratic'"),
        ("memory_target(growth=['linear'])", "growth is ['linear']; allowed are 'linear' and 'quadratic'"),
        ("memory_target(leaked_bytes=[0])", "leaked_bytes is [0]; it must be a number of bytes, 0 or more"),
        ("memory_target(leaked_bytes=-1)", "leaked_bytes is -1; it must be a number of bytes, 0 or more"),
        ("launches", "@pytest.mark.launches needs at_most"),
        ("launches(at_most=0)", "at_most is 0; it must be a whole number of kernels, at least 1"),
        ("no_sync(ever=True)", "@pytest.mark.no_sync has no argument 'ever'; known are"),
    ],
)
def test_bad_arguments_are_collection_errors(suite: Suite, marker: str, sentence: str) -> None:
    suite.write(f"@pytest.mark.{marker}\ndef test_it(perf): pass\n")
    outcome = suite.run()
    assert outcome.code == 2
    outcome.has(sentence)


@pytest.mark.parametrize(("small", "large", "power"), [(1, 2, 1.0), (1, 4, 2.0), (8, 8, 0.0), (0, 0, 0.0)])
def test_exponent(small: float, large: float, power: float) -> None:
    assert resources.exponent(small, large) == pytest.approx(power)


def test_exponent_of_something_from_nothing_is_beyond_every_bound() -> None:
    assert resources.exponent(0, 1) == float("inf")


def test_grown_doubles_queries_and_keys() -> None:
    made = Attention(1, 2, 128, 64, seq_kv=256, causal=True).grown(2)
    assert made == Attention(1, 2, 256, 64, seq_kv=512, causal=True)
    with pytest.raises(ValueError, match="gemm does not define grown"):
        Gemm(8, 8, 8).grown(2)


@pytest.mark.gpu
def test_on_a_card(gpu: object) -> None:
    import torch

    problem = Gemm(256, 256, 256)

    def frugal(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.add(a, b)

    def greedy(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        scratch = torch.empty(2**20, dtype=torch.uint8, device="cuda")
        scratch.add_(1).mul_(2)
        return torch.add(a, b) if bool(scratch[0] == 2) else a

    output = 256 * 256 * 2
    assert resources.peak_bytes(problem, frugal) == output
    assert resources.peak_bytes(problem, greedy) >= 2**20
    assert resources.kernel_launches(problem, frugal) == 1
    assert resources.kernel_launches(problem, greedy) >= 3
    assert not resources.synchronises(problem, frugal)
    assert resources.synchronises(problem, greedy)
