"""The clocks of a card, on a card."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from perfsuite import Custom, Gemm, Reason, Settings, Verdict, compare
from perfsuite.clock.base import CaptureError, Clock, Sides
from perfsuite.clock.choose import open_clock
from perfsuite.clock.graph import GraphClock
from perfsuite.clock.memory import Span
from perfsuite.clock.warmth import Probe
from perfsuite.device.telemetry import Watch
from perfsuite.problems.backward import with_gradients

pytestmark = pytest.mark.gpu
PROBLEM = Gemm(512, 512, 512)
ALLOWED = Settings(allow_shared=True)


def sides(candidate: Callable[..., Any], rival: Callable[..., Any] = torch.mm) -> Sides:
    generator = torch.Generator("cuda").manual_seed(1)
    return Sides(candidate, rival, lambda: PROBLEM.inputs(generator))


@pytest.fixture
def opened() -> Iterator[Callable[..., Clock]]:
    """Opens clocks, and closes them when the test ends."""
    clocks: list[Clock] = []

    def open_(candidate: Callable[..., Any], settings: Settings = ALLOWED) -> Clock:
        clocks.append(open_clock(sides(candidate), settings))
        return clocks[-1]

    yield open_
    for clock in clocks:
        clock.close()


def waits_for_the_card(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    product = torch.mm(a, b)
    torch.cuda.current_stream().synchronize()
    return product


def speed(clock: Clock, rounds: int = 24) -> float:
    return statistics.median(one.speed for one in clock.rounds(rounds))


@pytest.mark.parametrize(("choice", "near"), [("graph", 0.02), ("events", 0.2)])
def test_a_kernel_is_as_fast_as_itself(opened: Callable[..., Clock], choice: Any, near: float) -> None:
    clock = opened(torch.mm, Settings(clock=choice))
    assert clock.kind == choice
    assert speed(clock) == pytest.approx(1.0, abs=near)
    assert clock.seconds_spent > 0.0


def test_the_rotation_covers_three_caches(opened: Callable[..., Clock]) -> None:
    cache = torch.cuda.get_device_properties(0).L2_cache_size
    size = 2 * 512 * 512 * 2
    assert opened(torch.mm).rotation * size > 3 * cache
    assert opened(torch.mm, Settings(cache="hot")).rotation == 1


@pytest.mark.parametrize("choice", ["graph", "events"])
def test_timed_calls_give_the_right_answer_for_their_inputs(opened: Callable[..., Clock], choice: Any) -> None:
    clock = opened(torch.mm, Settings(clock=choice))
    clock.rounds(8)
    calls = clock.timed_calls(2)
    assert calls
    for call in calls:
        expected = torch.mm(*call.inputs.args)
        assert torch.equal(call.candidate_output, expected)
        assert call.rival_output is None or torch.equal(call.rival_output, expected)
        assert not call.inputs_changed


def test_what_waits_for_the_card_cannot_be_captured_and_is_timed_by_events(opened: Callable[..., Clock]) -> None:
    with pytest.raises(CaptureError, match="the candidate cannot be captured"):
        GraphClock(sides(waits_for_the_card)).setup()
    clock = opened(waits_for_the_card)
    assert clock.kind == "events"
    assert clock.note is not None
    assert "cannot be captured" in clock.note
    assert speed(clock) < 1.0
    # And the card is as usable as before.
    assert speed(opened(torch.mm)) == pytest.approx(1.0, abs=0.02)


def test_planted_work_is_found_and_measured() -> None:
    from perfsuite.calibrate.planted import PlantedClock, spin_cost

    plain = PlantedClock(sides(torch.mm), seed=0)
    plain.setup()
    seconds = statistics.median(one.rival_seconds for one in plain.rounds(24))
    plain.close()
    given = sides(torch.mm).make_inputs()
    cost = spin_cost(lambda: [given.call(torch.mm) for _ in range(60)])
    slower = PlantedClock(sides(torch.mm), seed=0, slowdown=0.05, call_seconds=seconds, cost=cost)
    slower.setup()
    assert 1.0 / speed(slower) == pytest.approx(1.05, abs=0.015)
    slower.close()


def test_a_time_does_not_depend_on_the_work_of_other_streams(opened: Callable[..., Clock]) -> None:
    clock = opened(torch.mm)
    times = []
    for _ in range(4):
        times.append(statistics.median(one.rival_seconds for one in clock.rounds(24)))
        for stream in (torch.cuda.default_stream(), torch.cuda.Stream(), torch.cuda.Stream()):
            with torch.cuda.stream(stream):
                number = torch.zeros(8, device="cuda")
                for _ in range(50):
                    number.add_(1.0)
                stream.synchronize()
    assert max(times) < 1.01 * min(times)  # 1.05 on an H200 without a change of contexts


def test_telemetry_comes_from_this_card(opened: Callable[..., Clock]) -> None:
    clock = opened(torch.mm)
    clock.rounds(4)
    seen = clock.telemetry()
    assert seen.unknown or seen.sm_clock_hz
    if seen.sm_clock_hz is not None:
        assert 1e8 < seen.sm_clock_hz < 5e9


def test_no_reading_of_the_clock_is_faster_than_the_card() -> None:
    """Also where the card has idled, and the launch comes late."""
    probe, watch = Probe(), Watch(str(torch.cuda.get_device_properties(0).uuid))
    full = watch.full_clock_hz()
    assert full is not None
    readings = []
    for _ in range(50):
        torch.cuda.synchronize()
        readings.append(probe.read())
    assert max(one for one in readings if one is not None) <= 1.02 * full


def test_an_output_can_be_read_without_being_held() -> None:
    tensor = torch.arange(24, dtype=torch.bfloat16, device="cuda").reshape(4, 6)[:, 1:4]
    alias = Span.of(tensor).tensor()
    assert alias.data_ptr() == tensor.data_ptr()
    assert torch.equal(alias, tensor)
    assert alias.stride() == tensor.stride()


def remembers() -> Callable[..., torch.Tensor]:
    known: dict[int, torch.Tensor] = {}

    def candidate(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        if not torch.cuda.is_current_stream_capturing():
            return torch.mm(a, b)
        return known.setdefault(a.data_ptr(), torch.zeros_like(a))

    return candidate


def test_what_is_wrong_only_while_it_is_timed_is_wrong() -> None:
    one = compare(PROBLEM, remembers(), at_least=0.5, settings=ALLOWED)
    assert one.verdict is Verdict.WRONG
    assert one.sentence.startswith("in a timed call")


def test_a_whole_case() -> None:
    one = compare(PROBLEM, torch.mm, at_least=0.8, settings=ALLOWED)
    assert (one.verdict, one.reason, one.clock) == (Verdict.MET, Reason.FAST_ENOUGH, "graph")
    assert one.candidate_host_seconds is not None
    assert one.bound in ("host", "device")
    assert one.gpu_seconds < 1.0


def add_in_place(x: torch.Tensor, y: torch.Tensor) -> None:
    x += y


@pytest.mark.parametrize("cache", ["cold", "hot"])
@pytest.mark.parametrize("choice", ["graph", "events"])
def test_a_kernel_in_place_is_judged_and_as_fast_as_itself(choice: Any, cache: Any) -> None:
    def rival(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x.add_(y)

    args = (torch.randn(2048, 2048, device="cuda"), torch.randn(2048, 2048, device="cuda"))
    settings = Settings(allow_shared=True, clock=choice, cache=cache)
    one = compare(Custom(args, against=rival), add_in_place, against=rival, at_least=0.9, settings=settings)
    assert one.verdict is Verdict.MET, one.sentence
    assert one.speed == pytest.approx(1.0, abs=0.05)
    assert one.clock_note is not None
    assert f"the restored values lie {'outside' if cache == 'cold' else 'in'} the L2" in one.clock_note
    assert one.launches <= one.rotation


def test_a_backward_alone_is_captured_anew_in_every_set_up() -> None:
    def rival(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(x) * y

    args = tuple(torch.randn(1024, 1024, device="cuda", requires_grad=True) for _ in range(2))
    problem, candidate = with_gradients(Custom(args, against=rival), rival, only=True)
    one = compare(problem, candidate, at_least=1.0, settings=ALLOWED)  # undecided for as long as it may
    assert one.clock == "graph"
    assert one.setups > 2
    assert one.verdict is not Verdict.WRONG, one.sentence
    # The allocator is as it was: the next case of the process is judged as ever.
    assert compare(PROBLEM, torch.mm, at_least=0.9, settings=ALLOWED).verdict is Verdict.MET


def test_state_that_is_reset_is_timed_by_events() -> None:
    used = [0]

    def reset(inputs: Any) -> None:
        used[0] = 0

    def counts(x: torch.Tensor) -> torch.Tensor:
        used[0] += 1
        assert used[0] <= 4
        return x + 1.0

    problem = Custom((torch.randn(2**20, device="cuda"),), against=lambda x: x + 1.0, reset=reset, calls_per_reset=4)
    one = compare(problem, counts, at_least=0.5, settings=ALLOWED)
    assert (one.verdict, one.clock, one.launches <= 4) == (Verdict.MET, "events", True), one.sentence
    assert "state in Python" in str(one.clock_note)
