"""A calibration's gates, on a made-up card whose times are known to the nanosecond."""

from __future__ import annotations

import itertools
import json
import math
import pickle
import random
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from fake_clock import FakeClock
from made_up_card import Card, card

from perfsuite.calibrate import plan as calibration_plan
from perfsuite.calibrate import planted as calibration_planted
from perfsuite.calibrate import worker as calibration_worker
from perfsuite.calibrate.cases import CalibrationCase
from perfsuite.calibrate.plan import Plan
from perfsuite.calibrate.planted import PlantedClock
from perfsuite.calibrate.slowed import Slowed
from perfsuite.calibrate.summary import noise_cases, summarise
from perfsuite.clock import cuda
from perfsuite.clock.rounds import Round
from perfsuite.device import turns
from perfsuite.problems import Custom
from perfsuite.settings import HARNESS

__all__ = ["card"]

CALL_SECONDS = 20e-6


@pytest.fixture
def known(card: Card, monkeypatch: pytest.MonkeyPatch) -> CalibrationCase:
    """A kernel of 20 microseconds, give or take half a percent a call."""
    noise = random.Random(4)

    def kernel(a: torch.Tensor) -> torch.Tensor:
        card.work(CALL_SECONDS * noise.gauss(1.0, 0.005))
        return a + 1.0

    case = CalibrationCase("kernel", Custom(lambda generator: (torch.randn(256),), label="kernel"), kernel)
    plain = torch.Generator
    monkeypatch.setattr(torch, "Generator", lambda device=None: plain())
    monkeypatch.setattr(calibration_worker, "cases", lambda device: [case])
    monkeypatch.setattr(calibration_plan, "_COSTS", {})
    monkeypatch.setattr(
        calibration_planted, "spin_cost", lambda calls: calibration_planted.SpinCost(launch=0.0, a_cycle=1 / 2e9)
    )
    return case


def run(tmp_path: Path, **plan: Any) -> list[dict[str, Any]]:
    rows = tmp_path / "rows.jsonl"
    file = tmp_path / "plan.json"
    file.write_text(json.dumps({"device": "cuda", "output": str(rows), "seconds": 60.0, "gates": []} | plan))
    calibration_worker.carry_out(file)
    return [json.loads(line) for line in rows.read_text().splitlines()]


def test_noise_then_gates_then_a_summary(known: CalibrationCase, tmp_path: Path) -> None:
    for process in range(2):
        rows = run(tmp_path, process=process, setups=4)
    assert [(row["kind"], len(row["setups"])) for row in rows] == [("noise", 4), ("noise", 4)]
    noise = tmp_path / "noise.json"
    noise.write_text(json.dumps({"gpu": "made up", "harness": "1", "cases": noise_cases(rows)}))
    gates = [("kernel", 0.0, 10), ("kernel", 0.01, 5), ("kernel", 0.05, 2)]
    rows = run(tmp_path, process=2, gates=gates, calibration=str(noise), case_count=8)
    found = summarise(rows, {"gpu": "made up"})
    assert (found["aa"]["gates"], found["aa"]["false_alarms"]) == (10, 0)
    assert [(one["slowdown"], one["caught"], one["trials"]) for one in found["planted"]] == [(0.01, 5, 5), (0.05, 2, 2)]
    assert found["planted"][0]["measured"] == pytest.approx(0.01, rel=0.1)
    assert found["cases"][0]["seconds"] == pytest.approx(CALL_SECONDS, rel=0.01)
    assert found["processes"] == 1


def test_planted_work_makes_the_case_as_much_slower_as_asked(
    known: CalibrationCase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A spin kernel costs six tenths of its time, as where it lets the clock rise."""
    genuine = torch.cuda._sleep
    monkeypatch.setattr(torch.cuda, "_sleep", lambda cycles: genuine(round(0.6 * cycles)))
    sizes = [("kernel", 0.01), ("kernel", 0.02)]
    for process in range(2):
        rows = run(tmp_path, process=process, setups=4, responses=sizes)
    assert [row["kind"] for row in rows] == 2 * ["noise", "response", "response"]
    (found,) = noise_cases(rows)
    assert dict(found["responses"])[0.02] == pytest.approx(0.6 * 0.02, rel=0.1)
    noise = tmp_path / "noise.json"
    noise.write_text(json.dumps({"gpu": "made up", "harness": "1", "cases": [found]}))
    rows = run(tmp_path, process=2, gates=[("kernel", size, 4) for _, size in sizes], calibration=str(noise))
    planted = summarise(rows, {"gpu": "made up"})["planted"]
    assert [one["measured"] for one in planted] == [pytest.approx(size, rel=0.1) for _, size in sizes]


@pytest.mark.parametrize(("measured", "corrected"), [(0.008, 0.0125), (0.02, 0.005), (0.1, 0.005), (-0.001, 0.02)])
def test_planted_work_of_an_isolated_side_is_corrected_within_bounds(
    measured: float, corrected: float, known: CalibrationCase, tmp_path: Path
) -> None:
    noise = tmp_path / "noise.json"
    noise.write_text(json.dumps({"cases": [{"case": "kernel", "responses": [[0.01, measured]]}, {"case": "other"}]}))
    plan = Plan(1, "cuda", "", 1.0, [], calibration=str(noise), isolated=True)
    for asked, planted in ((0.01, corrected), (0.02, 0.02)):  # of the second nothing is known
        slowed = calibration_plan._planted(plan, known, asked)
        assert isinstance(slowed, Slowed)
        assert slowed.share == pytest.approx(planted)


def test_the_noise_of_a_case_takes_fewer_set_ups_when_the_time_is_up(
    known: CalibrationCase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = itertools.chain([0.0, 0.0], itertools.repeat(100.0))
    monkeypatch.setattr(calibration_worker.time, "monotonic", lambda: next(times))
    (row,) = run(tmp_path, process=0, setups=8)
    assert len(row["setups"]) == calibration_worker.FEWEST_SETUPS


def test_no_gate_begins_after_the_time_is_up(known: CalibrationCase, tmp_path: Path) -> None:
    assert run(tmp_path, process=0, gates=[("kernel", 0.0, 5)], seconds=-1.0) == []


def test_planted_work_of_short_calls_adds_up_in_another_process_too(card: Card) -> None:
    slowed = pickle.loads(pickle.dumps(Slowed(print, 0.01, CALL_SECONDS, launch=1e-6, a_cycle=1 / 2e9)))
    slowed.function = lambda: card.work(CALL_SECONDS)
    for _ in range(4000):
        slowed()
    spins = 4000 * 0.01 * CALL_SECONDS / 8e-6
    # The launch of a spin kernel takes no time on this card.
    assert card.now == pytest.approx(4000 * CALL_SECONDS * 1.01 - spins * 1e-6, rel=1e-3)


class PairClock(FakeClock):
    """Times of a pair of processes, which differs from other pairs, and of its set-ups, which differ too."""

    opened: ClassVar[list[PairClock]] = []

    def __init__(self, chance: random.Random, between: float, slowdown: float) -> None:
        self.number = len(PairClock.opened)
        self.closed = self.renewed = 0
        shift = chance.gauss(0.0, between)
        setups: dict[int, float] = {}

        def script(setup: int, count: int) -> list[Round]:
            speed = math.exp(shift + setups.setdefault(setup, chance.gauss(0.0, 1e-3))) / (1.0 + slowdown)
            return [Round(CALL_SECONDS / speed * chance.gauss(1.0, 1e-3), CALL_SECONDS, "rival") for _ in range(count)]

        super().__init__(script)
        self.setup()
        PairClock.opened.append(self)

    def renew(self) -> None:
        self.renewed += 1

    def close(self) -> None:
        self.closed += 1


def pairs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, between: float) -> dict[str, Any]:
    """What is found by gates in pairs that differ by that much."""
    chance = random.Random(3)
    case = CalibrationCase("kernel", Custom(lambda generator: (torch.randn(256),), label="kernel"), torch.neg)
    monkeypatch.setattr(calibration_worker, "cases", lambda device: [case])
    monkeypatch.setattr(PairClock, "opened", [])
    monkeypatch.setattr(
        calibration_worker, "open_clock", lambda plan, case, seed, slowdown=0.0: PairClock(chance, between, slowdown)
    )
    (tmp_path / "rows.jsonl").unlink(missing_ok=True)
    noise = tmp_path / "noise.json"
    known = {"case": "kernel", "seconds": CALL_SECONDS, "setup_noise": 1e-3, "process_noise": 1e-4}
    noise.write_text(json.dumps({"gpu": "made up", "harness": HARNESS, "cases": [known]}))
    gates = [("kernel", 0.0, 230), ("kernel", 0.02, 10)]
    rows = run(tmp_path, process=3, gates=gates, isolated=True, calibration=str(noise))
    found = [row for row in rows if row["kind"] == "gate"]
    for one in PairClock.opened:
        assert one.closed == 1
    # One clock a pair, set up anew before each gate but the first: its own values, memory and captures.
    assert len({row["process"] for row in found}) == len(PairClock.opened) == 12 + 1
    assert len(found) == 240
    assert sum(one.renewed for one in PairClock.opened) == 240 - len(PairClock.opened)
    setups = [setup for one in PairClock.opened for setup in range(one.setups)]
    assert len(setups) >= len(found)
    return summarise(rows, {"gpu": "made up", "isolated": True})


def test_isolated_gates_share_pairs_and_what_pairs_differ_by_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alike, unlike = (pairs(tmp_path, monkeypatch, between) for between in (0.0, 3e-3))
    assert alike["pairs"]["gating_identical_code"] == 12
    assert alike["process_noise_seen"] < 5e-4
    assert unlike["process_noise_seen"] == pytest.approx(3e-3, rel=0.35)
    for found in (alike, unlike):
        assert found["cases"][0]["setup_noise_seen"] == pytest.approx(1e-3, rel=0.15)


def test_no_gate_of_a_pair_begins_after_the_time_is_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PairClock, "opened", [])
    monkeypatch.setattr(
        calibration_worker, "open_clock", lambda plan, case, seed, slowdown=0.0: PairClock(random.Random(1), 0.0, 0.0)
    )
    case = CalibrationCase("kernel", Custom(lambda generator: (torch.randn(256),), label="kernel"), torch.neg)
    times = itertools.chain([0.0, 1.0, 2.0], itertools.repeat(100.0))
    monkeypatch.setattr(calibration_worker.time, "monotonic", lambda: next(times))
    plan = calibration_plan.Plan(0, "cuda", "", 60.0, [], isolated=True)
    assert len(list(calibration_worker.gates(plan, case, 0.0, 0, 20, until=60.0))) == 3
    assert [one.closed for one in PairClock.opened] == [1]


def test_another_run_draws_other_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seeds: list[int] = []

    def opened(plan: Any, case: Any, seed: int, slowdown: float = 0.0) -> PairClock:
        seeds.append(seed)
        return PairClock(random.Random(seed), 0.0, slowdown)

    case = CalibrationCase("kernel", Custom(lambda generator: (torch.randn(256),), label="kernel"), torch.neg)
    monkeypatch.setattr(calibration_worker, "cases", lambda device: [case])
    monkeypatch.setattr(calibration_worker, "open_clock", opened)
    for number in (17, 10**9):
        run(tmp_path, process=3, gates=[("kernel", 0.05, 5)], seed=number)
    assert len(set(seeds)) == 10


def test_processes_of_a_card_set_up_beside_one_another_and_time_alone(
    card: Card, known: CalibrationCase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    plan: dict[str, Any] = {"process": 3, "gates": [["kernel", 0.0, 1]]}
    genuine = PlantedClock.rounds, PlantedClock.setup
    alone = [False]
    monkeypatch.setattr(turns, "is_alone", lambda: alone[0])
    for name in ("alone", "beside"):
        monkeypatch.setattr(turns, name, lambda name=name: (said.append(name), alone.__setitem__(0, name == "alone")))
    monkeypatch.setattr(cuda, "warm_up", lambda *how: said.append("warm"))
    monkeypatch.setattr(PlantedClock, "rounds", lambda self, count: (said.append("rounds"), genuine[0](self, count))[1])
    monkeypatch.setattr(PlantedClock, "setup", lambda self: (said.append("setup"), genuine[1](self))[1])
    run(tmp_path, **plan)
    first, later = ["setup", "beside", "alone", "warm", "rounds"], ["setup", "beside", "rounds", "alone", "warm"]
    begun = [place for place, one in enumerate(said) if one == "setup"]
    found = [said[place : place + 5] for place in begun]
    assert said[:5] == first
    assert all(one in (first, later) for one in found)
    assert said.count("warm") == len(begun)
