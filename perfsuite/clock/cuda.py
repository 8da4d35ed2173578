"""The base of the graph clock and the events clock: rotation, warm-up, paired rounds between CUDA events."""

from __future__ import annotations

import random
import statistics
import time
from typing import Any

from perfsuite.clock.base import CallingClock, ClockKind, SideFailedError, Sides
from perfsuite.clock.cache import l2_bytes, reset_persisting_l2
from perfsuite.clock.rotation import bytes_in, sets_needed
from perfsuite.clock.rounds import SIDES, Round, Side
from perfsuite.clock.warmth import LIMITED_AGAIN_SECONDS, LIMITED_SECONDS, Probe, warm_up
from perfsuite.device.telemetry import Telemetry, Watch
from perfsuite.guards.freshen import Freshener, fingerprint, same_fingerprint
from perfsuite.problems.base import Inputs
from perfsuite.settings import CacheMode

SPIN_CYCLES_A_SECOND = 2e9
"""Cycles of the blocking kernel per second. A slower card only blocks a little longer."""
WATCHED_SETS = 4
"""Sets whose inputs are checked for writes. A side that writes into its inputs does so in every call."""
HALF = 3
"""Events of half a round: before, between and after its two samples."""
HOST_CALLS = 20
HOST_REPEATS = 3
HOST_BOUND_SECONDS = 0.008
MOST_KEPT = 0.5
"""Share of the card's memory that torch's allocator may keep for the next case."""


class CudaClock(CallingClock):
    """Base of the two clocks that read CUDA events. A subclass enqueues the samples."""

    kind: ClockKind
    samples_a_side: int = 1
    """Samples after which every set of the rotation has been used once."""

    def __init__(self, sides: Sides, *, cache: CacheMode = "cold", seed: int = 0, note: str | None = None) -> None:
        import torch

        super().__init__(sides, cache=cache, seed=seed, note=note)
        self._device = torch.cuda.current_device()
        self._stream = torch.cuda.Stream()
        self._samples = 0
        self._overhead = 0.0
        self._event_cost = 0.0
        self._l2_reset: bool | None = None
        self._watch = Watch(str(torch.cuda.get_device_properties(self._device).uuid))
        self._full_hz = self._watch.full_clock_hz()
        self._probe = Probe()
        self._events = [torch.cuda.Event(enable_timing=True) for _ in range(3)]

    # -- methods of a subclass ---------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        """Prepare samples over `self._sets`; sets `launches` and `samples_a_side`."""
        raise NotImplementedError

    def _after_half(self, last: Side) -> None:
        """Called on the stream right after the last sample of half a round, which was one of `last`."""

    def _enqueue(self, side: Side, sample: int) -> None:
        """Enqueue one sample of `side` on the current stream."""
        raise NotImplementedError

    def _block(self, samples: int) -> None:
        """Keep the stream busy while `samples` samples are enqueued."""
        raise NotImplementedError

    def _touch(self) -> None:
        """Run once everything that rounds run, since a first run takes longer."""
        self._sample_seconds(self.samples_a_side)

    def _release(self) -> None:
        """Free graphs and outputs."""

    def _inputs_changed(self) -> bool:
        """True if the values of an input have changed, in sets drawn in secret."""
        return not same_fingerprint(self._fingerprint, fingerprint(self._watched))

    # -- the protocol ------------------------------------------------------------------------------------------------

    def setup(self) -> None:
        import torch

        self._release()
        self._sets = []
        spacer = torch.empty(512 * self._order.randrange(1, 2**16), dtype=torch.uint8, device="cuda")
        self._make_sets()
        torch.cuda.current_stream().synchronize()
        with torch.cuda.stream(self._stream):
            for side in SIDES:
                self._call(side, self._sets[0])
            self._prepare()
            self._freshener = Freshener(self._sets)
            self._watched = random.SystemRandom().sample(self._sets, min(WATCHED_SETS, len(self._sets)))
            self._fingerprint = fingerprint(self._watched)
            self._l2_reset = reset_persisting_l2()
            self._touch()
            limited = LIMITED_AGAIN_SECONDS if self._setups else LIMITED_SECONDS
            settled = warm_up(lambda count: sum(self._sample_seconds(count)), self._probe.read, self._full_hz, limited)
            self._settled = settled and self._settled is not False
        del spacer
        self._samples = 0
        self._setups += 1

    def rounds(self, count: int) -> list[Round]:
        """See `Clock`. A round has two halves, A B and B A.

        The first sample of a half takes up to 8 us longer on an H200, and the clock may drift. Each side is first once.
        """
        import torch

        while len(self._events) < count * 2 * HALF:
            self._events.append(torch.cuda.Event(enable_timing=True))
        orders: list[list[Side]] = []
        with torch.cuda.stream(self._stream):
            for _ in range(count):
                order: list[Side] = ["candidate", "rival"] if self._order.random() < 0.5 else ["rival", "candidate"]
                for sides in (order, order[::-1]):
                    # No inputs are seen twice, so results kept from an earlier half are useless. This comes before the
                    # block, which gives the host time to enqueue the timed work.
                    self._freshener.freshen()
                    if not orders or self.kind == "events":
                        self._block(2)
                    events = self._events_of(len(orders))
                    orders.append(sides)
                    events[0].record()
                    for side, event in zip(sides, events[1:], strict=True):
                        self._enqueue(side, self._samples)
                        event.record()
                        self._samples += 1
                    self._after_half(sides[-1])
            self._probe.enqueue()
            # Read while the card is busy: an idle card reports no reason.
            invalid = self._watch.reason_against()
            self._stream.synchronize()
            clock_hz = self._watch.note_clock(self._probe.hertz())
        halves = [self._read(sides, self._events_of(number)) for number, sides in enumerate(orders)]
        calls = 2 * self.launches
        return [
            Round(
                candidate_seconds=(one["candidate"] + two["candidate"]) / calls,
                rival_seconds=(one["rival"] + two["rival"]) / calls,
                first=orders[2 * number][0],
                setup=self._setups - 1,
                sm_clock_hz=clock_hz,
                discarded=invalid,
            )
            for number, (one, two) in enumerate(zip(halves[::2], halves[1::2], strict=True))
        ]

    def _events_of(self, half: int) -> list[Any]:
        """The events of that half of the rounds that are being timed."""
        return self._events[half * HALF : (half + 1) * HALF]

    def _read(self, sides: list[Side], events: list[Any]) -> dict[Side, float]:
        """Seconds of each side's sample between those events."""
        found: dict[Side, float] = {}
        for side, before, after in zip(sides, events, events[1:], strict=False):
            seconds = before.elapsed_time(after) / 1e3
            self._seconds += seconds
            found[side] = max(seconds - self._overhead, 1e-9)
        return found

    def host_seconds(self) -> tuple[float | None, float | None]:
        import torch

        found: dict[str, float] = {}
        with torch.cuda.stream(self._stream):
            for side in SIDES:
                self._stream.synchronize()
                start = time.perf_counter()
                self._call(side, self._sets[0])
                self._stream.synchronize()
                once = time.perf_counter() - start
                calls = max(1, min(HOST_CALLS, int(HOST_BOUND_SECONDS / HOST_REPEATS / max(once, 1e-7))))
                repeats = []
                for _ in range(HOST_REPEATS):
                    start = time.perf_counter()
                    for number in range(calls):
                        self._call(side, self._sets[number % len(self._sets)])
                    repeats.append((time.perf_counter() - start) / calls)
                    self._stream.synchronize()
                found[side] = statistics.median(repeats)
        return found["candidate"], found["rival"]

    def telemetry(self) -> Telemetry:
        self._watch.sample_slow()
        return self._watch.telemetry(l2_persistence_reset=self._l2_reset, clock_settled=self._settled)

    def close(self) -> None:
        import torch

        self._release()
        self._sets = []
        # The next case reuses this memory. To get it from the driver again takes up to 0.4 s.
        if torch.cuda.memory_reserved() > MOST_KEPT * torch.cuda.get_device_properties(self._device).total_memory:
            torch.cuda.empty_cache()

    # -- parts -------------------------------------------------------------------------------------------------------

    def _call(self, side: Side, inputs: Inputs) -> Any:
        try:
            return inputs.call(self._function(side))
        except Exception as error:
            raise SideFailedError(side, error) from error

    def _make_sets(self) -> None:
        first = self.sides.make_inputs()
        size = bytes_in(first)
        cache = l2_bytes(self._device)
        wanted = 1 if self.cache == "hot" else sets_needed(size, cache)
        self._sets = [first] + [self.sides.make_inputs() for _ in range(wanted - 1)]
        self.rotation = wanted
        covered = size * wanted / max(cache, 1)
        if self.cache == "cold" and 0 < covered < 3 and not self.warnings:
            self.warnings.append(
                f"the rotation covers {covered:.1f} L2 caches, not 3: part of the inputs may be read from the L2"
            )

    def _sample_seconds(self, samples: int) -> tuple[float, float]:
        """Enqueue `samples` samples of each side and wait; seconds of the candidate, and of the rival."""
        before, between, after = self._events[:3]
        before.record()
        for number in range(samples):
            self._enqueue("candidate", number)
        between.record()
        for number in range(samples):
            self._enqueue("rival", number)
        after.record()
        after.synchronize()
        one, two = before.elapsed_time(between) / 1e3, between.elapsed_time(after) / 1e3
        self._seconds += one + two
        return one, two


def spin(seconds: float) -> None:
    """Enqueue a kernel that keeps the current stream busy for about `seconds`."""
    import torch

    torch.cuda._sleep(int(seconds * SPIN_CYCLES_A_SECOND))
