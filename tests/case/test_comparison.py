"""Every verdict and reason of a timed case, from scripted rounds."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from fake_clock import FakeClock

from perfsuite.case.ask import Ask
from perfsuite.case.comparison import Comparison
from perfsuite.case.run import run_case
from perfsuite.clock.base import CaptureError, SideFailedError
from perfsuite.clock.rounds import Round
from perfsuite.device.telemetry import Telemetry
from perfsuite.outcome import Reason, Verdict
from perfsuite.problems import Custom, Gemm
from perfsuite.settings import Settings

PROBLEM = Gemm(8, 8, 8, dtype="float32")
SETTINGS = Settings(device="cpu", seconds=1.0)
Script = Callable[[int, int], Sequence[Round]]


def steady(speed: float | Callable[[int], float], *, noise: float = 1e-3, seconds: float = 1e-3, **more: Any) -> Script:
    """Rounds about `speed`, which may depend on the set-up."""
    random_ = random.Random(5)

    def script(setup: int, count: int) -> list[Round]:
        ratio = speed if isinstance(speed, float) else speed(setup)
        return [
            Round(seconds / (ratio * random_.gauss(1.0, noise)), seconds, "candidate", **more) for _ in range(count)
        ]

    return script


def judge(clock: FakeClock, *, at_least: float | None = 0.9, settings: Settings = SETTINGS, **more: Any) -> Comparison:
    asked = {"problem": PROBLEM, "candidate": torch.mm, "against": "cublas", "correctness": False, **more}
    ask = Ask(at_least=at_least, settings=settings, **asked)
    return run_case(ask, open_clock=lambda sides, settings: opened(clock))


def opened(clock: FakeClock) -> FakeClock:
    clock.setup()
    return clock


def test_met_at_the_first_look() -> None:
    one = judge(FakeClock(steady(0.95), telemetry=Telemetry(sm_clock_hz=1.98e9)))
    assert (one.verdict, one.reason) == (Verdict.MET, Reason.FAST_ENOUGH)
    assert (one.looks, one.setups, one.retries) == (1, 1, 0)
    assert one.speed == pytest.approx(0.95, rel=2e-3)
    assert one.speed_low is not None
    assert one.speed_high is not None
    assert 0.9 <= one.speed_low < one.speed < one.speed_high
    assert one.sentence.startswith("0.950 of cublas [0.")
    assert "at least 0.900 asked: 1.05 ms against 1.00 ms" in one.sentence


def test_a_far_miss_fails_at_once() -> None:
    one = judge(FakeClock(steady(0.5)))
    assert (one.verdict, one.reason) == (Verdict.MISSED, Reason.TOO_SLOW)
    assert (one.looks, one.retries) == (1, 0)


def test_a_suspect_is_set_up_anew_before_it_fails_and_the_retries_are_counted() -> None:
    one = judge(FakeClock(steady(0.82)))
    assert (one.verdict, one.reason) == (Verdict.MISSED, Reason.TOO_SLOW)
    assert (one.setups, one.retries) == (3, 2)
    assert {round_.setup for round_ in one.rounds} == {0, 1, 2}


def test_a_suspect_that_was_an_accident_of_its_set_up_does_not_fail() -> None:
    one = judge(FakeClock(steady(lambda setup: 0.85 if setup == 0 else 0.95, seconds=1e-4)))
    assert one.verdict is not Verdict.MISSED
    assert one.retries >= 1


def test_a_fresh_process_is_asked_before_a_suspect_fails() -> None:
    asked = []

    def elsewhere() -> list[Round]:
        asked.append(True)
        return list(steady(0.97, seconds=1e-4)(0, 40))

    one = judge(FakeClock(steady(0.84, seconds=1e-4)), remeasure=elsewhere)
    assert asked == [True]
    assert (one.verdict, one.reason) == (Verdict.UNDECIDED, Reason.PROCESSES_DISAGREE)
    assert one.sentence.startswith("missed here, and not in a fresh process; so far")
    assert one.retries == 3
    confirmed = judge(FakeClock(steady(0.84)), remeasure=lambda: list(steady(0.84)(0, 10)))
    assert (confirmed.verdict, confirmed.retries, confirmed.setups) == (Verdict.MISSED, 3, 4)


def test_undecided_when_the_budget_is_spent() -> None:
    one = judge(FakeClock(steady(0.9, noise=0.02)))
    assert (one.verdict, one.reason) == (Verdict.UNDECIDED, Reason.BUDGET_SPENT)
    assert 0.9 < one.gpu_seconds <= 1.0
    assert one.sentence.startswith("not decided in")


def test_calls_too_long_for_a_first_look_are_decided_only_beyond_doubt() -> None:
    fast, slow, near = (judge(FakeClock(steady(speed, seconds=0.1))) for speed in (1.5, 0.4, 0.8))
    assert (fast.verdict, slow.verdict) == (Verdict.MET, Verdict.MISSED)
    assert len(slow.rounds) == 4
    assert (near.verdict, near.reason) == (Verdict.UNDECIDED, Reason.BUDGET_SPENT)


def test_few_rounds_have_an_interval_of_their_own_confidence() -> None:
    one = judge(FakeClock(steady(0.4, seconds=0.1)))
    assert one.confidence == pytest.approx(1.0 - 2.0 / 2**4)
    assert one.speed_low is not None
    assert one.speed_high is not None
    assert 0.37 < one.speed_low < one.speed_high < 0.43
    assert "4 rounds only, the interval at 88%" in one.sentence


def test_a_first_look_takes_fewer_rounds_where_they_are_long() -> None:
    short, long, longer = (judge(FakeClock(steady(0.95, seconds=seconds))) for seconds in (1e-4, 2e-3, 0.04))
    assert [len(one.rounds) for one in (short, long, longer)] == [20, 14, 6]
    assert {one.confidence for one in (short, long, longer)} == {0.9}
    assert {one.verdict for one in (short, long, longer)} == {Verdict.MET}


def test_rounds_fewer_than_few_leave_the_interval_open() -> None:
    reasons = itertools.chain([None], itertools.repeat("hw-slowdown"))

    def script(setup: int, count: int) -> list[Round]:
        return [Round(0.3, 0.3, "rival", discarded=next(reasons)) for _ in range(count)]

    one = judge(FakeClock(script))
    assert (one.speed, one.speed_low, one.speed_high) == (1.0, 0.0, float("inf"))
    assert (one.verdict, one.reason) == (Verdict.UNDECIDED, Reason.THROTTLED)


def test_rounds_that_were_throttled_do_not_count() -> None:
    one = judge(FakeClock(steady(0.95, seconds=0.01, discarded="hw-thermal-slowdown")))
    assert (one.verdict, one.reason) == (Verdict.UNDECIDED, Reason.THROTTLED)
    assert one.rounds == ()
    assert one.speed is None
    assert "hw-thermal-slowdown" in one.sentence


def test_no_rounds_at_all() -> None:
    one = judge(FakeClock(lambda setup, count: []))
    assert (one.verdict, one.reason) == (Verdict.UNDECIDED, Reason.NO_ROUNDS)


@pytest.mark.parametrize("allowed", [False, True])
def test_another_process_on_the_card(allowed: bool) -> None:
    settings = Settings(device="cpu", allow_shared=allowed)
    one = judge(FakeClock(steady(0.95), telemetry=Telemetry(other_processes=1)), settings=settings)
    assert one.verdict is (Verdict.MET if allowed else Verdict.UNDECIDED)
    assert one.reason is (Reason.FAST_ENOUGH if allowed else Reason.SHARED_DEVICE)
    assert ("1 other process on the card" in one.sentence) is not allowed


@pytest.mark.parametrize(
    ("failure", "verdict", "reason"),
    [
        (SideFailedError("candidate", ZeroDivisionError("no")), Verdict.WRONG, Reason.CANDIDATE_FAILED),
        (SideFailedError("rival", ZeroDivisionError("no")), Verdict.UNDECIDED, Reason.RIVAL_FAILED),
        (SideFailedError("candidate", torch.OutOfMemoryError("no")), Verdict.UNDECIDED, Reason.OUT_OF_MEMORY),
        (torch.OutOfMemoryError("no"), Verdict.UNDECIDED, Reason.OUT_OF_MEMORY),
        (CaptureError("candidate", RuntimeError("no")), Verdict.WRONG, Reason.CANDIDATE_FAILED),
        (torch.AcceleratorError("CUDA error: unknown: launch failure"), Verdict.WRONG, Reason.CANDIDATE_FAILED),
    ],
)
def test_what_a_side_raises_becomes_a_verdict(failure: Exception, verdict: Verdict, reason: Reason) -> None:
    one = judge(FakeClock(steady(0.95), failure=failure))
    assert (one.verdict, one.reason) == (verdict, reason)
    assert "no" in one.sentence


def test_an_error_of_the_card_that_no_kernel_causes_accuses_nobody() -> None:
    busy = torch.AcceleratorError("CUDA error: CUDA-capable device(s) is/are busy or unavailable")
    with pytest.raises(torch.AcceleratorError):
        judge(FakeClock(steady(0.95), failure=busy))


def test_a_case_behind_one_that_broke_the_card_is_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(device: int) -> None:
        raise torch.AcceleratorError("CUDA error: device-side assert triggered\nCompile with TORCH_USE_CUDA_DSA")

    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "synchronize", broken)
    one = judge(FakeClock(steady(0.95)), settings=Settings(device="cuda"))
    assert (one.verdict, one.reason) == (Verdict.UNDECIDED, Reason.DEVICE_LOST)
    assert one.sentence.endswith("broken by an earlier case: CUDA error: device-side assert triggered")


def test_a_rival_whose_own_answer_is_wrong_decides_nothing() -> None:
    problem = Custom(args=(torch.randn(64, 64), torch.randn(64, 64)), label="mine", reference=torch.mm)
    one = judge(FakeClock(steady(2.0)), problem=problem, candidate=torch.mm, correctness=True, against=negated)
    assert (one.verdict, one.reason) == (Verdict.UNDECIDED, Reason.RIVAL_WRONG)
    assert "the library's own answer is wrong on these inputs (relative error 2 against FP64)" in one.sentence


def negated(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return -torch.mm(a, b)


def test_no_rival() -> None:
    problem = Custom(args=(torch.ones(4),), label="mine")
    one = judge(FakeClock(steady(0.95)), problem=problem, candidate=torch.neg, against=None)
    assert (one.verdict, one.reason) == (Verdict.UNDECIDED, Reason.NO_RIVAL)


def test_wrong_answers_are_not_timed() -> None:
    clock = FakeClock(steady(2.0))
    one = judge(clock, candidate=lambda a, b: a @ b * 1.01, correctness=True)
    assert (one.verdict, one.reason) == (Verdict.WRONG, Reason.INACCURATE)
    assert (one.speed, clock.setups) == (None, 0)
    assert one.candidate_error is not None
    assert one.error_limit is not None
    assert one.candidate_error > one.error_limit


def test_outputs_of_timed_calls_are_judged() -> None:
    def make() -> Any:
        return PROBLEM.inputs(torch.Generator().manual_seed(1))

    from perfsuite.clock.base import Sides

    clock = FakeClock(steady(2.0), sides=Sides(lambda a, b: torch.zeros_like(a @ b), torch.mm, make))
    one = judge(clock)
    assert (one.verdict, one.reason) == (Verdict.WRONG, Reason.INACCURATE)
    assert one.sentence.startswith("in a timed call")
    assert one.speed == pytest.approx(2.0, rel=0.01)


def test_checked_only() -> None:
    one = judge(FakeClock(steady(2.0)), against=None, at_least=None, correctness=True)
    assert (one.verdict, one.reason, one.clock) == (Verdict.MET, Reason.CHECKED, "none")
    assert "not timed" in one.sentence


def test_timed_without_a_target() -> None:
    one = judge(FakeClock(steady(0.3)), at_least=None)
    assert (one.verdict, one.reason) == (Verdict.MET, Reason.CHECKED)
    assert one.speed == pytest.approx(0.3, rel=2e-3)


@pytest.mark.parametrize("target", [0.0, -1.0, float("nan"), float("inf")])
def test_a_target_that_is_none_is_refused(target: float) -> None:
    with pytest.raises(ValueError, match="at_least is"):
        judge(FakeClock(steady(1.0)), at_least=target)


def test_a_comparison_is_plain_values() -> None:
    values = judge(FakeClock(steady(0.95))).as_dict()
    assert values["verdict"] == "MET"
    assert values["reason"] == "fast-enough"
    assert values["rounds"][0].keys() >= {"candidate_seconds", "rival_seconds", "first", "setup", "discarded"}


def test_the_host_that_bounds_a_case_is_named() -> None:
    one = judge(FakeClock(steady(0.95, seconds=4e-6), host_seconds=(9e-6, 8e-6)))
    assert one.bound == "host"
    assert "bound by the host (9.00 us a call)" in one.sentence


def test_missing_calibration_is_a_warning_on_a_gpu(tmp_path: Path) -> None:
    assert judge(FakeClock(steady(0.95)), settings=Settings(device="cpu")).warnings == ()
    one = judge(FakeClock(steady(0.95)), settings=Settings(device="cpu", calibration=tmp_path / "none.json"))
    assert [warning.partition("none.json ")[2].partition(":")[0] for warning in one.warnings] == ["is not used"]


def test_other_values_are_another_case() -> None:
    made = [
        run_case(Ask(PROBLEM, torch.mm, settings=Settings(device="cpu", distribution=distribution)))
        for distribution in ("normal", "cancellation")
    ]
    assert [one.name for one in made] == [PROBLEM.name, f"{PROBLEM.name} cancellation"]
    assert [one.verdict for one in made] == [Verdict.MET, Verdict.MET]


def test_a_case_says_what_it_took_and_how_much_of_it_were_checks() -> None:
    settings = Settings(device="cpu", seconds=0.05)
    one = run_case(Ask(PROBLEM, torch.mm, against="cublas", at_least=1e-3, settings=settings))
    assert 0.0 < one.check_seconds < one.wall_seconds
