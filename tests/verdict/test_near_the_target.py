"""Misses that a fresh process is asked about, and those that are plain without one."""

from __future__ import annotations

import math
import random
import statistics
from pathlib import Path

import pytest
from fake_clock import FakeClock

from perfsuite.clock.rounds import Round
from perfsuite.outcome import Verdict
from perfsuite.record.store import read_run
from perfsuite.settings import Settings
from perfsuite.verdict.noise import Noise
from perfsuite.verdict.policy import NEAR_BAND, is_near
from perfsuite.verdict.sequential import Estimate
from perfsuite.verdict.timing import Timed, Timing

KNOWN = Noise(setup=0.003, process=0.001, source="test")
SECONDS = 1e-4
SETUPS, RETRIES = 3, 3
"""Set-ups of each process, and retries, of a case that a fresh process has decided: two set-ups, and the process."""


def timed(speed: float, seed: int, *, setup: float = KNOWN.setup, process: float = 0.0) -> tuple[Timed, int]:
    """A gate of target 1 with that noise, and how often a fresh process was asked. process: how far this one is off."""
    draw = random.Random(seed)
    asked: list[int] = []

    def script(process: float, seed: int) -> list[float]:
        turns = random.Random(seed)
        bias = math.exp(process + turns.gauss(0.0, setup))
        return [speed * bias * math.exp(turns.gauss(0.0, 0.002)) for _ in range(200)]

    def rounds(number: int, count: int) -> list[Round]:
        return [Round(SECONDS, SECONDS * one, "rival") for one in script(process, 1000 * seed + number)[:count]]

    def elsewhere() -> list[Round]:
        asked.append(seed)
        return [
            Round(SECONDS, SECONDS * one, "rival", number)
            for number in range(3)
            for one in script(draw.gauss(0.0, KNOWN.process), 1000 * seed + 500 + number)[:20]
        ]

    clock = FakeClock(rounds)
    clock.setups = 1
    return Timing(clock, 1.0, Settings(cases=100), lambda _: KNOWN, elsewhere).run(), len(asked)


@pytest.mark.parametrize(("speed", "asks"), [(0.93, False), (0.92, False), (0.985, True)])
def test_a_plain_miss_asks_no_other_process(speed: float, asks: bool) -> None:
    for seed in range(30):
        found, asked = timed(speed, seed)
        assert (found.verdict, asked) == (Verdict.MISSED, int(asks)), seed
        assert found.setups == (6 if asks else 3)


def test_fresh_processes_on_record_are_nearer_to_the_first_one_than_the_band() -> None:
    apart = []
    for file in sorted((Path(__file__).parents[2] / "records").glob("h*/gates*.jsonl")):
        for case in read_run(file).cases:
            rounds = case.samples.rounds()
            if case.retries != RETRIES or max((one.setup for one in rounds), default=0) < 2 * SETUPS - 1:
                continue
            first, fresh = (
                statistics.median(one.speed for one in rounds if (one.setup < SETUPS) is before)
                for before in (True, False)
            )
            apart.append(abs(first / fresh - 1.0))
    assert len(apart) > 30
    assert max(apart) < NEAR_BAND


def test_at_the_target_itself_no_case_fails_without_another_process() -> None:
    """Also where set-ups differ four times as much as is known, or this process is 2 % off."""
    for seed in range(150):
        for more in ({}, {"setup": 4 * KNOWN.setup}, {"process": -0.02}):
            found, asked = timed(1.0, seed, **more)
            assert found.verdict is not Verdict.MISSED or asked, (seed, more)


@pytest.mark.parametrize(
    ("speed", "high", "near"),
    [
        (0.940, 0.946, False),
        (0.960, 0.963, True),  # less than 5 %
        (0.940, 0.957, True),  # less than four half-widths
        (0.945, 0.950, False),
    ],
)
def test_near_is_a_share_of_the_target_and_some_half_widths(speed: float, high: float, near: bool) -> None:
    assert is_near(Estimate(speed, 0.9, high), 1.0) is near
    assert is_near(Estimate(2 * speed, 1.8, 2 * high), 2.0) is near
