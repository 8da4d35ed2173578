"""The rival's time before the candidate's process starts: it must agree with that in the rounds."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))

import isolated_kernels as kernels
from beside import found_among

from perfsuite.case.ask import Ask
from perfsuite.case.comparison import Comparison, unmeasured
from perfsuite.clock.rounds import Round
from perfsuite.isolate import compare, compare_isolated, nursery, sandbox
from perfsuite.isolate.alone import PAIRS, Alone, agreed, alone, rival_seconds
from perfsuite.outcome import Reason, Verdict
from perfsuite.problems import Gemm
from perfsuite.settings import Settings

BEFORE = Alone(10e-6, 50, 0.02)
SETTINGS = Settings(device="cpu", seconds=0.1)


def measured(rival: float, verdict: Verdict = Verdict.MET, launches: int = 100) -> Comparison:
    ask = Ask(Gemm(8, 8, 8, "float32"), torch.mm, against="cublas", settings=SETTINGS)
    found = unmeasured(ask, verdict, Reason.FAST_ENOUGH, "so fast")
    return replace(found, launches=launches, rounds=(Round(1e-5, rival, "rival"),), rival_seconds=rival)


def times(*pairs: tuple[float, float]) -> Any:
    left = list(pairs)
    return lambda: left.pop(0)


def test_a_rival_as_fast_as_before_is_not_timed_again() -> None:
    for rival in (8e-6, 10e-6, 12.4e-6):
        found = measured(rival)
        assert agreed(found, BEFORE, times()) is found
    noisy = measured(18e-6)
    assert agreed(noisy, Alone(10e-6, 50, 0.3), times()) is noisy


def test_a_rival_that_is_slow_beside_the_candidate_alone_is_tampered_with() -> None:
    found = agreed(measured(20e-6), BEFORE, times(*[(20e-6, 10e-6)] * PAIRS))
    assert (found.verdict, found.reason) == (Verdict.WRONG, Reason.TAMPERED)
    assert "20.0 us a call beside the candidate, 10.0 us before it began" in found.sentence


@pytest.mark.parametrize(
    "pairs",
    [
        [(20e-6, 10e-6)] * (PAIRS - 1) + [(10e-6, 10e-6)],  # once it was as fast beside the candidate
        [(20e-6, 20e-6)],  # it stays slow without the candidate
        [(40e-6, 20e-6)] * PAIRS,  # it never is as fast as before
    ],
)
def test_a_candidate_that_is_not_shown_to_be_the_cause_is_undecided(pairs: list[tuple[float, float]]) -> None:
    found = agreed(measured(20e-6), BEFORE, times(*pairs))
    assert (found.verdict, found.reason) == (Verdict.UNDECIDED, Reason.RIVAL_SLOWED)
    assert found.sentence.endswith("so far so fast")
    missed = measured(20e-6, Verdict.MISSED)
    assert agreed(missed, BEFORE, times(*pairs)) is missed


def test_samples_that_are_slow_by_their_length_accuse_nobody() -> None:
    short = measured(20e-6, launches=25)
    cold = [(20e-6, 10e-6)] * PAIRS  # a quarter of a millisecond: the candidate's calls have emptied the caches
    assert agreed(short, BEFORE, times(*cold)).reason is Reason.RIVAL_SLOWED
    assert agreed(short, BEFORE, times((20e-6, 20e-6))) is short


def test_a_rival_that_is_shorter_than_an_order_says_nothing() -> None:
    class Clock:
        launches = 4

        def __init__(self, seconds: float) -> None:
            self.seconds = seconds

        def setup(self) -> None:
            pass

        def close(self) -> None:
            self.closed = True

        def rounds(self, count: int) -> list[Round]:
            return [Round(1e-5, self.seconds * (1 + number / 100), "rival") for number in range(count)]

    clock: Any = Clock(1e-5)
    found = alone(clock)
    assert found is not None
    assert found.seconds == pytest.approx(1.07e-5)
    assert found.spread == pytest.approx(0.075, rel=0.1)
    assert clock.closed
    short: Any = Clock(1e-9)
    assert alone(short) is None


def test_a_rival_timed_again_waits_as_long_as_the_candidates_samples_took(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind a long sample its calls are slower, and so they are behind a pause."""
    waited: list[float] = []
    monkeypatch.setattr("time.sleep", waited.append)

    class Clock:
        launches = 4
        rounds_made = 0

        def setup(self) -> None:
            pass

        def close(self) -> None:
            pass

        def rounds(self, count: int) -> list[Round]:
            self.rounds_made += count
            return [Round(1e-2, 1e-5, "rival")] * count

    clock: Any = Clock()
    assert rival_seconds(clock, pause=0.04) == (1e-5, pytest.approx(0.04))
    assert waited == [0.04] * clock.rounds_made


def test_a_target_that_a_rival_as_fast_as_before_would_not_reach_is_met() -> None:
    far = replace(measured(20e-6), speed_low=1.5, target=0.7)
    assert agreed(far, BEFORE, times((20e-6, 20e-6))) is far
    near = replace(far, target=0.8)
    assert agreed(near, BEFORE, times((20e-6, 20e-6))).verdict is Verdict.UNDECIDED
    assert agreed(far, BEFORE, times(*[(20e-6, 10e-6)] * PAIRS)).verdict is Verdict.WRONG


@pytest.fixture
def no_sandbox(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As on a machine without bubblewrap: processes outside the worker's group are not stopped with it."""
    monkeypatch.setattr(sandbox, "PROGRAM", "a program that there is not")
    monkeypatch.setattr(nursery, "_started", started := {})
    sandbox.why_not.cache_clear()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
    for one in (made for kind in started.values() for made in kind):
        one.close()
    monkeypatch.undo()
    sandbox.why_not.cache_clear()


def isolated(candidate: Any) -> Comparison:
    return compare_isolated(
        Ask(Gemm(192, 192, 192, "float32"), candidate, against="cublas", at_least=1e-3, settings=SETTINGS), 60.0
    )


@pytest.mark.usefixtures("no_sandbox")
def test_processes_that_are_busy_while_the_rival_is_timed_are_found() -> None:
    one = found_among(5, lambda: isolated(kernels.burns_while_stopped))
    assert one.verdict is Verdict.WRONG, one.sentence
    assert "what the candidate leaves behind slows the rival" in one.sentence


@pytest.mark.usefixtures("no_sandbox")
def test_a_machine_that_becomes_busy_accuses_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    busy: list[subprocess.Popen[bytes]] = []
    before = compare._before

    def and_then_busy(*arguments: Any) -> Alone | None:
        found = before(*arguments)
        busy.extend(
            subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2 * (os.cpu_count() or 1))
        )
        return found

    monkeypatch.setattr(compare, "_before", and_then_busy)
    try:
        one = isolated(kernels.product)
    finally:
        for process in busy:
            process.kill()
            process.wait()
    assert one.verdict is not Verdict.WRONG, one.sentence
