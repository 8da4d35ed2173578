"""The graph clock on a made-up card: what is captured, in which order it is replayed, what comes of the times."""

from __future__ import annotations

import random
import statistics
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from made_up_card import Card, FakeGraph, card, takes

from perfsuite.clock import cuda, forwards, graph
from perfsuite.clock.base import CaptureError, Sides
from perfsuite.clock.deck import Deck
from perfsuite.clock.rounds import SIDES
from perfsuite.guards import kernel_names
from perfsuite.problems.base import Inputs
from perfsuite.problems.written import Written

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


@pytest.mark.parametrize(("seconds", "calls"), [(1e-4, 1 + 3 * 20), (1e-3, 1 + 3 * 2), (5e-3, 1 + 3), (45e-3, 1 + 1)])
def test_the_host_time_of_a_long_call_takes_few_calls(
    card: Card, seconds: float, calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = clock_of(card, seconds, 2e-6)
    made: list[str] = []
    call = clock._call

    def counted(side: Any, inputs: Inputs) -> Any:
        made.append(side)
        return call(side, inputs)

    monkeypatch.setattr(clock, "_call", counted)
    monkeypatch.setattr(cuda, "time", SimpleNamespace(perf_counter=lambda: card.now))
    assert clock.host_seconds() == pytest.approx((seconds, 2e-6))  # a launch takes as long as a call on this card
    assert clock.waited_seconds == pytest.approx((seconds, 2e-6))
    assert (made.count("candidate"), made.count("rival")) == (calls, 1 + 3 * 20)


@pytest.mark.parametrize("seconds", [4e-6, 150e-6, 2e-3])
def test_what_comes_first_takes_longer_and_that_falls_on_both_sides_of_every_round(
    card: Card, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = clock_of(card, seconds, seconds)
    card.after_others = 8e-6
    plain = clock._deck.deal

    def deal(places: Any = None) -> None:
        plain(places)
        card.other = True

    monkeypatch.setattr(clock._deck, "deal", deal)
    rounds = clock.rounds(12)
    assert {one.first for one in rounds} == {"candidate", "rival"}
    assert [one.speed for one in rounds] == pytest.approx([1.0] * 12, abs=1e-6)
    assert rounds[0].rival_seconds > seconds


def test_a_steady_drift_of_the_clock_falls_on_both_sides_alike(card: Card, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = clock_of(card, 150e-6, 150e-6)
    plain, samples = clock._enqueue, iter(range(10_000))

    def slower_and_slower(side: Any, sample: int, place: int) -> None:
        card.now += 1e-6 * next(samples)
        plain(side, sample, place)

    monkeypatch.setattr(clock, "_enqueue", slower_and_slower)
    assert [one.speed for one in clock.rounds(12)] == pytest.approx([1.0] * 12, abs=1e-6)


def test_contexts_change_before_all_rounds_and_a_refusal_is_told_once(
    card: Card, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes: list[int] = []

    def refused(device: int) -> str:
        changes.append(len(card.replays))
        return "cuCtxCreate_v4 failed with error 2 of the driver"

    monkeypatch.setattr(cuda, "change_contexts", refused)
    clock = clock_of(card, 5e-6, 5e-6)
    assert changes == [0]  # no costs are measured before
    for number in range(2):
        before = len(card.replays)
        clock.rounds(3)
        assert changes[number + 1 :] == [before]
    assert [one for one in clock.warnings if "error 2 of the driver" in one] == clock.warnings


def test_inputs_are_new_for_each_half_of_a_round(card: Card, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = clock_of(card, 20e-6, 20e-6)
    seen: list[list[float]] = []
    monkeypatch.setattr(clock, "_enqueue", lambda side, sample, place: seen.append(clock._sets[0].args[0].tolist()))
    monkeypatch.setattr(clock, "_watch_calls", lambda *args, **options: None)
    clock.rounds(2)
    assert seen[0] == seen[1]
    assert seen[2] == seen[3]
    assert len({tuple(one) for one in seen}) == 4
    # Whole operands move, not a few values.
    assert sum(one == other for one, other in zip(seen[0], seen[2], strict=True)) < 8


def test_written_arguments_are_restored_before_every_sample(card: Card) -> None:
    def writes(a: torch.Tensor) -> None:
        card.work(20e-6)

    sides = Sides(writes, writes, lambda: Inputs((torch.randn(256),)), written=Written((0,), ("a",)))
    clock = graph.GraphClock(sides)
    clock.setup()
    assert clock.launches <= clock.rotation
    done: list[str] = []
    deal, restore, enqueue = clock._deck.deal, clock._deck.restore, clock._enqueue
    clock._deck.deal = lambda *given: (done.append("deal"), deal(*given))  # type: ignore[method-assign]
    clock._deck.restore = lambda *given: (done.append("restore"), restore(*given))  # type: ignore[method-assign]

    def enqueued(side: Any, sample: int, place: int) -> None:
        done.append("sample")
        assert not bool((clock._sets[0].args[0] == 0.0).any())
        enqueue(side, sample, place)
        for one in clock._sets:
            one.args[0].zero_()

    clock._enqueue = enqueued  # type: ignore[method-assign]
    rounds = clock.rounds(3)
    half = ["deal", "restore", "sample", "restore", "sample"]
    assert done == half * 6
    assert [one.speed for one in rounds] == pytest.approx([1.0] * 3, rel=0.02)
    assert all(bool((call.candidate_output["a"] == 0.0).all()) for call in clock.timed_calls(3))


def test_hot_written_arguments_are_some_sets_that_lie_in_the_cache(card: Card) -> None:
    sides = Sides(lambda a: card.work(5e-6), lambda a: card.work(5e-6), lambda: Inputs((torch.randn(64),)),
                  written=Written((0,), ("a",)))  # fmt: skip
    clock = graph.GraphClock(sides, cache="hot")
    clock.setup()
    assert clock.rotation == clock.launches == 4  # of 256 bytes, in a quarter of 4096


def test_a_sample_is_a_pass_over_the_whole_rotation(card: Card) -> None:
    clock = clock_of(card, 20e-6, 20e-6)
    assert clock.rotation == 1 + 3 * 4096 // 1024
    (track,) = clock._tracks
    assert [index for piece in track.pieces for index in piece] == list(range(clock.rotation))
    assert len(track.pieces) > 1
    graphs = [one for (side, _), found in track.captures.items() for one in found if side == "rival"]
    assert sum(len(one.graphs) for one in graphs) >= graph.FEWEST_GRAPHS
    assert set(track.captures) == {(side, place) for side in ("candidate", "rival") for place in (0, 1)}


def test_all_results_of_a_half_have_memory_of_their_own(card: Card) -> None:
    clock = clock_of(card, 20e-6, 20e-6)
    for track in clock._tracks:
        for captured in (one for found in track.captures.values() for one in found):
            spans = [span.address for memory in captured.memory for span in memory]
            assert len(set(spans)) == len(spans) == clock.launches
            assert captured.whole == list(range(clock.launches))
    held: list[tuple[int, int]] = []
    plain = clock._drawn

    def drawn(side: Any, sample: int, place: int) -> Any:
        held.append((SIDES.index(side), place))
        return plain(side, sample, place)

    clock._drawn = drawn  # type: ignore[method-assign]
    clock.rounds(3)
    assert {place for _, place in held} == {0, 1}


def test_few_results_fit_so_few_calls_make_a_sample(card: Card, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (20 * 1024, 10**11))
    clock = clock_of(card, 20e-6, 20e-6)
    assert clock.launches == int(0.3 * 20 * 1024 / (2 * 1024)) < clock.rotation


def test_a_reused_result_is_judged_in_its_last_call_only(card: Card) -> None:
    buffer = torch.zeros(256)

    def reuses(a: torch.Tensor) -> torch.Tensor:
        card.work(20e-6)
        return buffer

    clock = graph.GraphClock(Sides(reuses, takes(card, 20e-6), lambda: Inputs((torch.randn(256),))))
    clock.setup()
    clock.rounds(4)
    assert len(clock.timed_calls(3)) >= 1
    assert any("same memory again" in one for one in clock.warnings)


def test_a_sample_of_long_calls_is_one_call(card: Card) -> None:
    clock = clock_of(card, 5e-3, 5e-3)
    card.replays.clear()
    rounds = clock.rounds(10)
    assert len(card.replays) == 20
    # One call of each side makes a round, in an order and then in the other.
    assert all({one.first, other.first} == set(SIDES) for one, other in zip(rounds[::2], rounds[1::2], strict=True))


def test_dealing_takes_a_small_share_of_the_time_of_a_half(card: Card, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = clock_of(card, 20e-6, 20e-6)
    assert clock._share_dealt() == 1.0
    half = 2 * clock.launches * 20e-6
    monkeypatch.setattr(cuda, "DEALT_BYTES_A_SECOND", clock.rotation * 1024 / half)
    assert clock._share_dealt() == pytest.approx(cuda.DEALING, rel=0.01)
    monkeypatch.setattr(cuda, "DEALT_WORDS_A_SECOND", clock.rotation * 128 / half)
    assert clock._share_dealt() == pytest.approx(cuda.DEALING / 2, rel=0.01)  # of 256 numbers


@pytest.mark.parametrize(("dtype", "words"), [(torch.int8, 4096), (torch.float16, 4096), (torch.complex64, 8192)])
def test_what_is_dealt_is_counted_in_bytes_and_in_words(dtype: torch.dtype, words: int) -> None:
    deck = Deck(
        lambda: Inputs((torch.randn(64, 64).to(dtype),)), Inputs((torch.randn(64, 64).to(dtype),)), 3, "elements"
    )
    assert (deck.words_dealt(2), deck.bytes_dealt(2)) == (2 * words, 2 * 4096 * dtype.itemsize)


def test_a_set_too_large_to_copy_is_kept_as_it_lies_in_the_last_half(
    card: Card, monkeypatch: pytest.MonkeyPatch
) -> None:
    from types import SimpleNamespace

    facts = SimpleNamespace(uuid="none", L2_cache_size=4096, total_memory=8192)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: facts)
    clock = clock_of(card, 1e-3, 1e-3)
    clock.rounds(3)
    (call,) = clock.timed_calls(3)
    assert any(call.inputs is one for one in clock._sets)
    clock.setup()
    assert clock.timed_calls(3) == []


def test_hard_inputs_are_timed_like_others_and_do_not_count(card: Card) -> None:
    seen: list[float] = []

    def sees(a: torch.Tensor) -> torch.Tensor:
        card.work(5e-3)
        return a + 1.0

    hard = {"sevens": lambda: Inputs((torch.full((256,), 7.0),))}
    clock = graph.GraphClock(Sides(sees, takes(card, 5e-3), lambda: Inputs((torch.randn(256),)), hard=hard))
    clock.setup()
    plain = clock._enqueue

    def enqueue(side: Any, sample: int, place: int) -> None:
        seen.append(float(clock._inputs_of(sample, 0).args[0].mean()))
        plain(side, sample, place)

    clock._enqueue = enqueue  # type: ignore[method-assign]
    assert len(clock.rounds(4)) == 4
    assert seen.count(7.0) == 1
    assert len(seen) == 10
    (call,) = (one for one in clock.timed_calls(2) if one.distribution)
    assert call.distribution == "sevens"
    assert bool((call.inputs.args[0] == 7.0).all())


def test_a_rotation_that_takes_long_is_used_part_by_part(card: Card) -> None:
    clock = clock_of(card, 1e-3, 1e-3)
    assert clock.launches == 1
    used = [index for track in clock._tracks for piece in track.pieces for index in piece]
    assert used == list(range(clock.rotation))
    card.replays.clear()
    clock.rounds(clock.rotation)
    assert len({id(one) for one in card.replays}) >= clock.rotation


def test_hot_inputs_are_one_set(card: Card) -> None:
    clock = clock_of(card, 5e-6, 5e-6, cache="hot")
    assert (clock.rotation, clock.warnings) == (1, [])
    assert clock.launches * 5e-6 >= graph.SAMPLE_SECONDS * 0.999


def test_judged_calls_are_those_that_were_timed(card: Card, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = clock_of(card, 20e-6, 20e-6)
    before = len(card.replays)
    monkeypatch.setattr(clock, "_secret", random.Random(3))  # its coins poison some results, and leave others
    for _ in range(8):
        clock.rounds(4)
    replays = len(card.replays) - before
    calls = clock.timed_calls(30)
    looks = clock.look_at_more(40, lambda mine, rivals: bool(torch.isnan(mine).all()))
    # Neither needs a further replay: the results were copied right behind the samples.
    assert len(card.replays) - before == replays
    assert 6 <= len(calls) <= 20
    # This card's replays compute nothing: what was poisoned stays so, and the rest is as the capture left it.
    poisoned = [bool(torch.isnan(call.candidate_output).all()) for call in calls]
    assert any(poisoned)
    assert not all(poisoned)
    assert sum(looks) == sum(poisoned)
    assert not any(call.inputs_changed for call in calls)


def test_a_write_into_the_inputs_of_a_kept_call_is_seen(card: Card, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = clock_of(card, 20e-6, 20e-6)
    plain = clock._enqueue

    def writes(side: Any, sample: int, place: int) -> None:
        plain(side, sample, place)
        clock._sets[0].args[0].add_(1.0)

    monkeypatch.setattr(clock._kept, "draw", list)
    monkeypatch.setattr(clock, "_enqueue", writes)
    clock.rounds(2)
    calls = clock.timed_calls(30)
    assert len(calls) == clock.rotation
    # The calls of a half have one fingerprint.
    assert all(call.inputs_changed for call in calls)


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


def test_planted_work_is_once_a_sample(card: Card) -> None:
    from perfsuite.calibrate import planted

    cost = planted.SpinCost(launch=0.0, a_cycle=1 / 2e9)
    sides = Sides(takes(card, 20e-6), takes(card, 20e-6), lambda: Inputs((torch.randn(256),)))
    clock = planted.PlantedClock(sides, seed=1, slowdown=0.02, call_seconds=20e-6, cost=cost)
    clock.setup()
    assert statistics.median(one.speed for one in clock.rounds(10)) == pytest.approx(1 / 1.02, rel=1e-3)
    ours, theirs = clock.replays()
    ours()
    theirs()


def test_a_capture_ends_whatever_is_raised_in_it(card: Card, monkeypatch: pytest.MonkeyPatch) -> None:
    def full() -> None:
        raise torch.OutOfMemoryError("all memory is taken")

    with pytest.raises(torch.OutOfMemoryError):
        forwards.capture(FakeGraph(), full, "candidate", pool=(0, 1), device=0)
    assert card.capturing is None

    freed = []
    monkeypatch.setattr(torch._C, "_cuda_endAllocateToPool", lambda *place: freed.append(place), raising=False)
    monkeypatch.setattr(forwards, "free_default_generator", lambda device: None)
    monkeypatch.setattr(FakeGraph, "capture_end", takes_no_end)
    with pytest.raises(CaptureError, match="invalidated"):
        forwards.capture(FakeGraph(), lambda: None, "candidate", pool=(0, 1), device=0)
    assert freed == [(0, (0, 1))]


def takes_no_end(graph: FakeGraph) -> None:
    raise RuntimeError("capture was invalidated")
