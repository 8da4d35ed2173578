"""The plan of processes that are compared: as many rounds and set-ups whatever the target, judged afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest
from fake_clock import FakeClock

from perfsuite import Gemm
from perfsuite.case.ask import Ask
from perfsuite.clock.base import Clock, Sides
from perfsuite.clock.rounds import Round
from perfsuite.history import sampling
from perfsuite.outcome import Reason, Verdict
from perfsuite.settings import Settings

torch = pytest.importorskip("torch")
SETTINGS = Settings(device="cpu", seconds=5.0)


def scripted(speed: float, seconds: float) -> Any:
    def script(setup: int, count: int) -> Sequence[Round]:
        return [Round(seconds, seconds * speed * (1 + 1e-4 * number), "candidate") for number in range(count)]

    def opened(sides: Sides, settings: Settings) -> Clock:
        clock = FakeClock(script, sides=sides)
        clock.setup()
        return clock

    return opened


def measured(
    candidate: Any = torch.matmul, *, at_least: float | None, speed: float = 1.0, seconds: float = 1e-5
) -> Any:
    problem = Gemm(16, 16, 16, dtype="float32")
    ask = Ask(problem, candidate, against="cublas", at_least=at_least, settings=SETTINGS)
    return sampling.measure(ask, open_clock=scripted(speed, seconds))


@pytest.mark.parametrize(("seconds", "setups"), [(1e-5, 10), (1e-4, 4)])
def test_the_plan_does_not_depend_on_the_target(seconds: float, setups: int) -> None:
    plans = set()
    for at_least in (0.5, 0.999, 1.5):
        made = measured(at_least=at_least, seconds=seconds)
        plans.add((len(made.rounds), len({one.setup for one in made.rounds}), made.setups))
    (plan,) = plans
    assert plan == (20, setups, setups)


@pytest.mark.parametrize(
    ("at_least", "verdict", "reason"),
    [
        (0.5, Verdict.MET, Reason.FAST_ENOUGH),
        (1.0, Verdict.UNDECIDED, Reason.BUDGET_SPENT),
        (1.5, Verdict.MISSED, Reason.TOO_SLOW),
    ],
)
def test_the_target_is_judged_afterwards(at_least: float, verdict: Verdict, reason: Reason) -> None:
    made = measured(at_least=at_least)
    assert (made.verdict, made.reason, made.target) == (verdict, reason, at_least)
    assert f"at least {at_least:.3f} asked" in made.sentence


def test_a_wrong_answer_stays_wrong() -> None:
    assert measured(lambda a, b: a @ b + 1, at_least=0.5).verdict is Verdict.WRONG


def test_everything_else_is_the_clocks() -> None:
    clock = FakeClock(lambda setup, count: [Round(1e-5, 1e-5, "rival")] * count)
    clock.setup()
    often = cast(Clock, sampling.ManySetups(clock))
    assert (often.kind, often.launches, often.host_seconds()) == ("fake", 1, (None, None))
    assert [one.setup for one in often.rounds(5)] == [0, 0, 1, 1, 2]
    assert [one.setup for one in often.rounds(2)] == [2, 3]
