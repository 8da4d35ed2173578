"""The graph clock on a made-up card: what is captured, in which order it is replayed, what comes of the times."""

from __future__ import annotations

import random
import statistics
from typing import Any

import pytest
import torch
from made_up_card import Card, FakeGraph, card, takes

from perfsuite.clock import graph
from perfsuite.clock.base import CaptureError, Sides
from perfsuite.guards import kernel_names
from perfsuite.problems.base import Inputs

__all__ = ["card"]


def clock_of(card: Card, candidate: float, rival: float, *, size: int = 256, **options: Any) -> graph.GraphClock:
    sides = Sides(takes(card, candidate), takes(card, rival), lambda: Inputs((torch.randn(size),)))
    made = graph.GraphClock(sides, **options)
    made.setup()
    return made


@pytest.mark.parametrize(
    ("candidate", "rival"), [(4e-6, 3e-6), (10e-6, 10.1e-6), (150e-6, 100e-6), (2e-3, 2e-3), (5e-2, 1e-4)]
)
def test_times_and_ratio_come_out_whatever_the_length_of_a_call(card: Card, candidate: float, rival: float) -> None:
    clock = clock_of(card, candidate, rival)
    for _ in range(3):
        rounds = clock.rounds(10)
        assert statistics.median(one.candidate_seconds for one in rounds) == pytest.approx(candidate, rel=2e-3)
        assert statistics.median(one.rival_seconds for one in rounds) == pytest.approx(rival, rel=2e-3)
        assert {one.first for one in rounds} == {"candidate", "rival"}
        clock.setup()
    assert rounds[0].setup == 2
    assert clock.seconds_spent > 30 * clock.launches * (candidate + rival)
    clock.close()


@pytest.mark.parametrize("seconds", [4e-6, 150e-6, 2e-3])
def test_what_comes_first_takes_longer_and_that_falls_on_both_sides_of_every_round(
    card: Card, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = clock_of(card, seconds, seconds)
    card.after_others = 8e-6
    plain = clock._freshener.freshen

    def freshen() -> None:
        plain()
        card.other = True

    monkeypatch.setattr(clock._freshener, "freshen", freshen)
    rounds = clock.rounds(12)
    assert {one.first for one in rounds} == {"candidate", "rival"}
    assert [one.speed for one in rounds] == pytest.approx([1.0] * 12, abs=1e-6)
    assert rounds[0].rival_seconds > seconds


def test_a_steady_drift_of_the_clock_falls_on_both_sides_alike(card: Card, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = clock_of(card, 150e-6, 150e-6)
    plain, samples = clock._enqueue, iter(range(10_000))

    def slower_and_slower(side: Any, sample: int) -> None:
        card.now += 1e-6 * next(samples)
        plain(side, sample)

    monkeypatch.setattr(clock, "_enqueue", slower_and_slower)
    assert [one.speed for one in clock.rounds(12)] == pytest.approx([1.0] * 12, abs=1e-6)


def test_inputs_are_new_for_each_half_of_a_round(card: Card, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = clock_of(card, 150e-6, 150e-6)
    seen: list[list[float]] = []
    monkeypatch.setattr(clock, "_enqueue", lambda side, sample: seen.append(clock._sets[0].args[0].tolist()))
    clock.rounds(2)
    assert seen[0] == seen[1]
    assert seen[2] == seen[3]
    assert len({tuple(one) for one in seen}) == 4


def test_a_sample_is_a_pass_over_the_whole_rotation(card: Card) -> None:
    clock = clock_of(card, 20e-6, 20e-6)
    assert clock.rotation == 1 + 3 * 4096 // 1024
    (track,) = clock._tracks
    assert [index for piece in track for index in piece.indices] == list(range(clock.rotation))
    assert len(track) > 1
    assert [piece.last for piece in track] == [False] * (len(track) - 1) + [True]
    assert sum(len(piece.graphs["rival"]) for piece in track) >= graph.FEWEST_GRAPHS


def test_a_rotation_that_takes_long_is_used_part_by_part(card: Card) -> None:
    clock = clock_of(card, 1e-3, 1e-3)
    assert clock.launches == 1
    used = [index for track in clock._tracks for piece in track for index in piece.indices]
    assert used == list(range(clock.rotation))
    card.replays.clear()
    clock.rounds(clock.rotation)
    assert len({id(one) for one in card.replays}) >= clock.rotation


def test_hot_inputs_are_one_set(card: Card) -> None:
    clock = clock_of(card, 5e-6, 5e-6, cache="hot")
    assert (clock.rotation, clock.warnings) == (1, [])
    assert clock.launches * 5e-6 >= graph.SAMPLE_SECONDS * 0.999


def test_timed_calls_are_replays_over_poisoned_outputs(card: Card) -> None:
    clock = clock_of(card, 20e-6, 20e-6)
    clock.rounds(4)
    calls = clock.timed_calls(2)
    assert len(calls) == 2
    # This card's replays compute nothing: what was poisoned stays so.
    assert all(torch.isnan(call.candidate_output).all() for call in calls)
    assert not any(call.inputs_changed for call in calls)


def test_further_looks_are_replays_of_which_some_are_over_poison(card: Card, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = clock_of(card, 20e-6, 20e-6)
    # One in some hundred sequences of coins poisons every output at its first look.
    monkeypatch.setattr(graph.random, "SystemRandom", lambda: random.Random(1))
    looks = clock.look_at_more(40, lambda mine, rivals: bool(torch.isnan(mine).all()))
    assert len(looks) == 40
    # This card's replays compute nothing; poison stays from one look to the next, so a few clean ones come first.
    assert any(looks)
    assert not all(looks)


def test_kernels_are_those_of_graphs_that_are_timed(card: Card, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = clock_of(card, 20e-6, 30e-6)
    clock.rounds(clock.rotation)
    asked = []

    def kernels_in(captured: FakeGraph) -> list[str]:
        asked.append(captured)
        return ["", *map(str, captured.items), *map(str, captured.items)]

    monkeypatch.setattr(kernel_names, "kernels_in", kernels_in)
    assert clock.kernels() == ({"2e-05"}, {"3e-05"})
    assert all(one.keeps_nodes and one in card.replays for one in asked)
    clock.close()
    assert clock.kernels() is None


def test_a_side_that_fails_in_its_capture_is_named(card: Card) -> None:
    def refuses(a: torch.Tensor) -> torch.Tensor:
        if card.capturing is not None:
            raise RuntimeError("not while capturing\nand more")
        return a + 1.0

    sides = Sides(refuses, takes(card, 1e-5), lambda: Inputs((torch.randn(256),)))
    with pytest.raises(CaptureError, match=r"the candidate cannot be captured: RuntimeError: not while capturing$"):
        graph.GraphClock(sides).setup()


def test_planted_work_is_once_a_sample(card: Card, monkeypatch: pytest.MonkeyPatch) -> None:
    from perfsuite.calibrate import planted as planted

    monkeypatch.setattr(planted, "spin_cost", lambda: planted.SpinCost(launch=0.0, a_cycle=1 / 2e9))
    sides = Sides(takes(card, 20e-6), takes(card, 20e-6), lambda: Inputs((torch.randn(256),)))
    clock = planted.PlantedClock(sides, seed=1, slowdown=0.02, call_seconds=20e-6)
    clock.setup()
    assert statistics.median(one.speed for one in clock.rounds(10)) == pytest.approx(1 / 1.02, rel=1e-3)
    ours, theirs = clock.replays()
    ours()
    theirs()
