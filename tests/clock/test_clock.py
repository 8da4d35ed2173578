"""Rotation, the host clock and the choice of a clock, on any machine."""

from __future__ import annotations

import itertools
import math
import random
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from perfsuite.clock import choose, host
from perfsuite.clock.base import CaptureError, SideFailedError, Sides
from perfsuite.clock.host import HostClock
from perfsuite.clock.rotation import MOST_SETS, bytes_in, sets_needed, share_memory
from perfsuite.clock.rounds import Round
from perfsuite.guards.watch import TamperedError, Watch
from perfsuite.problems.base import Inputs
from perfsuite.problems.written import Written
from perfsuite.settings import Settings

MEBI = 2**20


def fresh() -> Inputs:
    return Inputs((torch.randn(32, 32), torch.randn(32, 32)), {"out_dtype": None})


@pytest.mark.parametrize(("size", "cache"), [(MEBI, 50 * MEBI), (3 * MEBI, 50 * MEBI), (400 * MEBI, 50 * MEBI)])
def test_between_two_uses_of_a_set_lie_three_caches(size: int, cache: int) -> None:
    sets = sets_needed(size, cache)
    assert (sets - 1) * size >= 3 * cache
    assert (sets - 2) * size < 3 * cache or sets == 2


def test_tiny_and_empty_inputs_have_a_bounded_rotation() -> None:
    assert sets_needed(64, 50 * MEBI) == MOST_SETS
    assert sets_needed(0, 50 * MEBI) == 2


def test_shared_memory_is_seen_through_views() -> None:
    inputs = fresh()
    assert share_memory(inputs.args[0][1:], inputs)
    assert not share_memory(inputs.args[0] + 1.0, inputs)
    whole = inputs.args[0]  # sets are stacked: neighbours of one allocation are not each other's memory
    assert not share_memory(whole[:4], Inputs((whole[4:],)))
    alone = torch.from_numpy(whole.numpy()[4:])  # results of a capture come back with a storage of their own
    assert share_memory(alone, Inputs((whole[6:],)))
    assert bytes_in(inputs) == 2 * 32 * 32 * 4


def waits(seconds: float) -> Any:
    def call(a: torch.Tensor, b: torch.Tensor, out_dtype: Any = None) -> torch.Tensor:
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            pass
        return a + b

    return call


def test_the_host_clock_finds_the_ratio_of_known_times() -> None:
    clock = HostClock(Sides(waits(400e-6), waits(200e-6), fresh), cache="hot", seed=3)
    clock.setup()
    rounds = clock.rounds(21)
    # The least of many: what else runs here can only add to a known time.
    candidate, rival = (min(getattr(one, side) for one in rounds) for side in ("candidate_seconds", "rival_seconds"))
    assert candidate >= 400e-6
    assert rival / candidate == pytest.approx(0.5, rel=0.3)
    assert {one.first for one in rounds} == {"candidate", "rival"}
    assert clock.seconds_spent > 21 * clock.launches * 600e-6
    assert clock.rotation == 1


def test_timed_calls_of_the_host_clock_are_of_rounds_drawn_in_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "interruptions", lambda: 0)
    clock = HostClock(Sides(waits(1e-5), torch.add, lambda: Inputs(fresh().args)))
    clock.setup()
    for _ in range(3):
        clock.rounds(3)
    calls = clock.timed_calls(12)
    assert 3 <= len(calls) <= 12  # of each batch one or two of the last round, and as many of one that is drawn
    assert len(clock.look_at_more(12, lambda mine, rivals: torch.equal(mine, rivals))) == len(calls)
    assert all(clock.look_at_more(12, torch.equal))
    for call in calls:
        assert torch.equal(call.candidate_output, call.inputs.args[0] + call.inputs.args[1])
        assert call.rival_output is None
        assert not call.inputs_changed


class Reuses:
    """Adds into one buffer. only: the calls of a sample that it computes; None for all."""

    def __init__(self, only: int | None = None) -> None:
        self.only, self.buffer, self.call = only, torch.zeros(32, 32), 0

    def __call__(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        place, self.call = self.call, self.call + 1
        return self.buffer if self.only not in (None, place) else torch.add(a, b, out=self.buffer)


def judged(candidate: Reuses, monkeypatch: pytest.MonkeyPatch) -> tuple[HostClock, list[int], list[bool]]:
    """The clock of some rounds of six calls, the lengths of the candidate's samples, and which kept calls are right."""
    monkeypatch.setattr(host, "interruptions", lambda: 0)
    hard = {"large": lambda: Inputs((torch.full((32, 32), 1e3), torch.full((32, 32), 2e3)))}
    clock = HostClock(Sides(candidate, torch.add, lambda: Inputs(fresh().args), hard=hard), seed=3)
    clock.launches = 6
    clock.setup()
    lengths, run = [], clock._run

    def noted(side: Any, start: int, calls: int, chosen: int) -> Any:
        candidate.call = 0
        lengths.extend([calls] if side == "candidate" else [])
        return run(side, start, calls, chosen)

    monkeypatch.setattr(clock, "_run", noted)
    assert sum(len(clock.rounds(3)) for _ in range(16)) == 48
    calls = clock.timed_calls(99)
    assert [call.distribution for call in calls].count("large") == 1
    return clock, lengths, [torch.equal(one.candidate_output, one.inputs.args[0] + one.inputs.args[1]) for one in calls]


def test_a_reused_buffer_is_judged_by_the_last_calls_of_samples_of_drawn_length(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, lengths, right = judged(Reuses(), monkeypatch)
    assert clock.warnings == [host.REUSES]
    assert len(right) > 8
    assert all(right)
    assert lengths.count(6) >= 48
    assert len(set(lengths)) > 3


def test_a_reused_buffer_does_not_hide_calls_that_compute_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, right = judged(Reuses(only=5), monkeypatch)
    assert not all(right)


def test_written_arguments_are_restored_before_every_sample() -> None:
    seen: list[float] = []

    def doubles(x: torch.Tensor, y: torch.Tensor) -> None:
        seen.append(float(x.abs().max()))
        x *= 2.0

    written = Written((0,), ("x",))
    clock = HostClock(Sides(doubles, doubles, lambda: Inputs(fresh().args), written=written))
    clock.setup()
    clock.rounds(12)
    assert clock.launches <= clock.rotation
    assert len(seen) > 24
    assert max(seen) < 7.0  # of normal values, which a second call on the same would double
    calls = clock.timed_calls(9)
    assert calls
    for call in calls:
        assert torch.equal(call.candidate_output["x"], 2.0 * call.inputs.args[0])
        assert not call.inputs_changed
    assert all(clock.look_at_more(9, lambda mine, rivals: torch.equal(mine["x"], rivals["x"])))


def test_names_are_looked_at_behind_calls_that_come_after_the_last_batch() -> None:
    """The judgement follows: a function that is replaced there could judge, and put itself back."""
    genuine, late = math.log, []

    def candidate(a: torch.Tensor, b: torch.Tensor, out_dtype: Any) -> torch.Tensor:
        if late:
            math.log = math.sin
        return a @ b

    def rival(a: torch.Tensor, b: torch.Tensor, out_dtype: Any) -> torch.Tensor:
        return a @ b

    clock = HostClock(Sides(candidate, rival, fresh, hard={"late": fresh}, watch=Watch(list)))
    clock.setup()
    late.append(True)
    try:
        with pytest.raises(TamperedError, match=r"math\.log"):
            clock.timed_calls(1)
        assert math.log is genuine
    finally:
        math.log = genuine


def test_a_side_that_raises_is_named() -> None:
    def fails(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("broken")

    with pytest.raises(SideFailedError, match="the rival raised RuntimeError: broken"):
        HostClock(Sides(torch.add, fails, lambda: Inputs(fresh().args))).setup()


class Recorder:
    """Stands for a CUDA clock where there is no card."""

    def __init__(self, kind: str, made: list[Any], failure: Exception | None = None) -> None:
        self.kind, self.made, self.failure = kind, made, failure
        self.closed = False

    def __call__(self, sides: Sides, **options: Any) -> Recorder:
        self.options = options
        self.made.append(self)
        return self

    def setup(self) -> None:
        if self.failure:
            raise self.failure

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize("choice", ["auto", "graph", "events"])
def test_what_cannot_be_captured_is_timed_by_events(choice: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import perfsuite.clock.events
    import perfsuite.clock.graph

    made: list[Any] = []
    refusal = CaptureError("candidate", RuntimeError("operation not permitted when stream is capturing\nmore"))
    graph, events = Recorder("graph", made, refusal), Recorder("events", made)
    monkeypatch.setattr(perfsuite.clock.graph, "GraphClock", graph)
    monkeypatch.setattr(perfsuite.clock.events, "EventsClock", events)
    sides, settings = Sides(torch.add, torch.add, fresh), Settings(clock=choice)
    if choice == "graph":
        with pytest.raises(CaptureError):
            choose.open_clock(sides, settings)
        return
    assert choose.open_clock(sides, settings) is events  # type: ignore[comparison-overlap]
    if choice == "auto":
        assert graph.closed
        assert "the candidate cannot be captured" in events.options["note"]
        assert "more" not in events.options["note"]
    else:
        assert made == [events]


def test_a_cpu_gets_the_host_clock() -> None:
    clock = choose.open_clock(Sides(torch.add, torch.add, lambda: Inputs(fresh().args)), Settings(device="cpu"))
    assert (clock.kind, clock.note) == ("host", None)


def test_speed_is_the_rivals_time_over_the_candidates() -> None:
    assert Round(2.0, 1.0, "rival").speed == 0.5


def interrupted(monkeypatch: pytest.MonkeyPatch, counts: Iterator[int]) -> tuple[HostClock, list[Any]]:
    """A clock that reads these counts of interruptions before and behind its rounds, and the rounds that it times."""
    monkeypatch.setattr(host, "interruptions", lambda: next(counts))
    clock = HostClock(Sides(waits(1e-5), waits(1e-5), fresh))
    clock.setup()
    made: list[Any] = []
    measured = clock._round
    monkeypatch.setattr(clock, "_round", lambda **how: made.append(measured(**how)) or made[-1])
    return clock, made


def test_a_round_that_was_interrupted_is_measured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    quiet = [0] * 2 * 5
    clock, made = interrupted(monkeypatch, itertools.chain([0, 3, 3, 5, 5, 5], quiet, itertools.count(6)))
    assert clock.rounds(1) == [made[2]]  # the third was left alone
    assert len(clock.rounds(5)) == 5
    assert len(clock.rounds(1)) == 1
    assert len(made) == 3 + 5 + 1 + host.MOST_REPEATS  # all of the last were interrupted


def test_calls_of_the_last_round_of_a_batch_are_judged_and_those_of_a_drawn_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A candidate that is honest for so many calls, and never again, is not honest in the last ones."""
    monkeypatch.setattr(host, "interruptions", lambda: 0)
    clock = HostClock(Sides(waits(1e-5), waits(1e-5), fresh))
    monkeypatch.setattr(clock, "_secret", random.Random(5))  # else a place stays undrawn in one run of 1400
    clock.setup()
    kept: list[bool] = []
    measured = clock._round

    def noted(*, keeper: bool, hard: str | None = None) -> Round:
        kept.append(keeper)
        return measured(keeper=keeper, hard=hard)

    monkeypatch.setattr(clock, "_round", noted)
    drawn = set()
    for _ in range(30):
        kept.clear()
        clock.rounds(4)
        assert kept[-1]
        assert sum(kept) <= 2
        drawn.add(kept.index(True))
    assert drawn == set(range(4))


def test_repeats_do_not_spend_a_case_on_a_busy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, made = interrupted(monkeypatch, itertools.count())
    assert len(clock.rounds(40)) == 40
    assert len(made) <= 40 * (1 + host.REPEATS_A_ROUND) + 1
