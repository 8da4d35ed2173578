"""The base of the graph clock and the events clock: sets of inputs, warm-up, host times, telemetry."""

from __future__ import annotations

import statistics
import sys
import time
import traceback
from dataclasses import replace

from perfsuite.clock.base import CaptureError, ClockKind, SideFailedError, Sides
from perfsuite.clock.cache import l2_bytes, reset_persisting_l2
from perfsuite.clock.deck import Deck
from perfsuite.clock.other_context import change_contexts
from perfsuite.clock.paired import ONE_HALF_SECONDS, PairedClock
from perfsuite.clock.room import plan
from perfsuite.clock.rotation import CACHE_MULTIPLE, bytes_in, sets_needed
from perfsuite.clock.rounds import SIDES, Side
from perfsuite.clock.warmth import LIMITED_AGAIN_SECONDS, LIMITED_SECONDS, warm_up
from perfsuite.device.idle import seconds_until_idle
from perfsuite.device.telemetry import Telemetry
from perfsuite.guards.recompiles import compiling
from perfsuite.guards.watch import TamperedError
from perfsuite.settings import CacheMode

SPIN_CYCLES_A_SECOND = 2e9
"""Cycles of the blocking kernel per second. A slower card only blocks a little longer."""
EVICTED_CACHES = 2
"""Times the L2 that is read between dealing and timing."""
DEALING = 0.1
"""Longest time of dealing, as a share of half a round."""
DEALT_BYTES_A_SECOND, DEALT_WORDS_A_SECOND = 1.1e12, 0.33e12
"""As seen on an H200, with many bytes: words of eight bytes reach the first, words of one byte the second; those of two
and four lie between. To write a byte, up to two are read, and some of a mask."""
HELD_SHARE = 0.3
"""Share of the free memory that the results of half a round may take."""
HOT_WRITTEN_SETS, HOT_SHARE = 64, 0.25
"""Most sets of written inputs if the cache is hot, and the share of the L2 that they may take."""
MOST_SPACER = 2**16
"""Most units of 512 bytes by which the buffers of a set-up are shifted."""
HOST_CALLS = 20
HOST_REPEATS = 3
HOST_BOUND_SECONDS = 0.008
"""Time of the calls by which a side's host time is found. A longer call is repeated once: only its launch counts."""
LEFT_SECONDS = 0.25
"""Work of other streams that goes on for longer, when times are to be taken, is named in the record."""
MOST_KEPT = 0.5
"""Share of the card's memory that torch's allocator may keep for the next case."""


class CudaClock(PairedClock):
    """Base of the two clocks that read CUDA events. A subclass enqueues the samples."""

    kind: ClockKind
    _share = 1.0
    """The part of the card's memory that is this process's."""

    def __init__(self, sides: Sides, *, cache: CacheMode = "cold", seed: int = 0, note: str | None = None) -> None:
        super().__init__(sides, cache=cache, seed=seed, note=note)
        self._event_cost = 0.0
        self._call_seconds = 0.0
        self._l2_reset: bool | None = None
        self._lean = False
        """True if all sets of the rotation did not fit."""
        self._told_of_cover = False
        self._told_of_streams = self._told_of_work = False
        self._most_calls = 1
        self._full_hz = self._watch.full_clock_hz()

    def _prepare(self) -> None:
        """Prepare samples over `self._sets`; sets `launches` and `samples_a_side`."""
        raise NotImplementedError

    def _touch(self) -> None:
        """Run once everything that rounds run, since a first run takes longer."""
        self._sample_seconds(self.samples_a_side)

    def _release(self) -> None:
        """Free graphs and outputs."""

    def setup(self) -> None:
        import torch
        from torch import OutOfMemoryError

        try:
            self._set_up()
            return
        except (OutOfMemoryError, SideFailedError, CaptureError) as error:
            if not isinstance(getattr(error, "cause", error), OutOfMemoryError) or self._lean or self.rotation != 2:
                raise
            for one in (error, error.__cause__):
                if one is not None:  # their frames hold what the attempt had allocated
                    traceback.clear_frames(one.__traceback__)
        self._lean = True
        self._clear()
        torch.cuda.empty_cache()
        self._set_up()

    def _called_first(self) -> list[int]:
        """Call each side once; the bytes of its result."""
        found = []
        for side in SIDES:
            self._reset(0)
            found.append(bytes_in(self._call(side, self._sets[0])))
            self._restore_all()
        return found

    def _clear(self) -> None:
        """Free graphs and sets of inputs; the next ones get their memory."""
        self._release()
        self._forget()
        self._sets, self._deck = [], None  # type: ignore[assignment]
        if self._room.by_reference:
            self._kept.clear()

    def _set_up(self) -> None:
        import torch

        self._clear()
        spacer = torch.empty(512 * self._order.randrange(1, MOST_SPACER), dtype=torch.uint8, device="cuda")
        self._make_sets()
        torch.cuda.current_stream().synchronize()
        with torch.cuda.stream(self._stream):
            results = compiling(self._called_first, self.warnings, again=True)
            if self._room.by_reference:
                torch.cuda.empty_cache()  # graphs cannot use what these calls left with the allocator
            self._most_calls = self._calls_that_fit(max(results))
            self._stream.synchronize()
            self._alone()
            self._prepare()
            self._deck.share = self._share_dealt()
            # Results that a side has kept from its warm-up or its capture are stale from here on.
            self._deck.deal()
            self._l2_reset = reset_persisting_l2()
            self._touch()
            self._settle()
        del spacer
        self._samples = 0
        self._setups += 1
        self._hard_due = bool(self.sides.hard) and self._deck.moves

    def _settle(self) -> None:
        """Warm up, on the current stream."""
        limited = LIMITED_AGAIN_SECONDS if self._setups else LIMITED_SECONDS
        settled = warm_up(lambda count: sum(self._sample_seconds(count)), self._probe.read, self._full_hz, limited)
        self._settled = settled and self._settled is not False

    def host_seconds(self) -> tuple[float | None, float | None]:
        import torch

        found: dict[str, float] = {}
        waited: dict[str, float] = {}
        with torch.cuda.stream(self._stream):
            for side in SIDES:
                self._restore_all()
                self._reset(0)
                self._stream.synchronize()
                start = time.perf_counter()
                self._call(side, self._sets[0])
                self._stream.synchronize()
                waited[side] = once = time.perf_counter() - start
                calls = int(HOST_BOUND_SECONDS / HOST_REPEATS / max(once, 1e-7))
                calls = self._most_in_a_sample(max(1, min(HOST_CALLS, calls)))
                repeats = []
                for _ in range(HOST_REPEATS if once < HOST_BOUND_SECONDS else 1):
                    self._restore_all()
                    self._reset(0)
                    start = time.perf_counter()
                    for number in range(calls):
                        self._call(side, self._sets[number % len(self._sets)])
                    repeats.append((time.perf_counter() - start) / calls)
                    self._stream.synchronize()
                found[side] = statistics.median(repeats)
        self.waited_seconds = waited["candidate"], waited["rival"]
        return found["candidate"], found["rival"]

    def telemetry(self) -> Telemetry:
        self._watch.sample_slow()
        found = self._watch.telemetry(l2_persistence_reset=self._l2_reset, clock_settled=self._settled)
        if found.other_processes is None:
            return found
        # Isolated cases leave processes of this one on the card for the cases that follow. They rest.
        ahead = sys.modules.get("perfsuite.isolate.ahead")
        own = 0 if ahead is None else ahead.ready("cuda")
        return replace(found, other_processes=max(0, found.other_processes - own))

    def _make_room(self) -> None:
        import torch

        self._release()
        self._forget()
        judged = [call.inputs for call in self._kept.ordinary()]
        self._sets, self._deck = judged[:1] or self._sets[:1], None  # type: ignore[assignment]
        torch.cuda.empty_cache()

    def close(self) -> None:
        import torch

        self._clear()
        self._kept.clear()
        # The next case reuses this memory. To get it from the driver again takes up to 0.4 s.
        most = MOST_KEPT * self._share * torch.cuda.get_device_properties(self._device).total_memory
        if torch.cuda.memory_reserved() > most:
            torch.cuda.empty_cache()

    # -- parts -------------------------------------------------------------------------------------------------------

    def _make_sets(self) -> None:
        import torch

        first = self.sides.make_inputs()
        size = bytes_in(first) + self._kept_for_backward(first)
        cache = l2_bytes(self._device)
        wanted = sets_needed(size, cache) if self.cache == "cold" else self._hot_sets(size, cache)
        moves, written = self.sides.moves, self._written_places
        total = torch.cuda.get_device_properties(self._device).total_memory
        self._room = plan(size, wanted, total, written=bool(written), lean=self._lean)
        self.rotation, self._kept.most = self._room.sets, self._room.kept_calls
        if self._room.note and self._room.note not in self.notes:
            self.notes.append(self._room.note)
        sets, integers = self._room.sets, self.sides.integers
        self._deck = Deck(self.sides.make_inputs, first, sets, moves, stacked=True, written=written, integers=integers)
        self._sets = self._deck.sets
        if self._other_memory is None:
            self._other_memory = torch.zeros(EVICTED_CACHES * cache // 4, dtype=torch.int32, device="cuda")
            self._sink = torch.zeros((), dtype=torch.int32, device="cuda")
        covered = size * self.rotation / max(cache, 1)
        self.covered = not 0 < covered < CACHE_MULTIPLE
        if self.cache == "cold" and not self.covered and not self._told_of_cover:
            self._told_of_cover = True
            self.warnings.append(
                f"the rotation covers {covered:.1f} L2 caches, not {CACHE_MULTIPLE}: "
                "part of the inputs may be read from the L2"
            )

    def _alone(self) -> None:
        self._wait_for_other_streams()
        reason = change_contexts(self._device)
        if reason is not None and not self._told_of_streams:
            self._told_of_streams = True
            self.warnings.append(
                f"no second context could have the card for a moment ({reason}): "
                "if other streams have worked, short kernels may take up to 0.35 us longer"
            )

    def _wait_for_other_streams(self) -> None:
        """Work that a side has left on another stream would slow the other side while that is timed.

        Raises TamperedError if it does not end.
        """
        waited = seconds_until_idle(self._device)
        if waited is None:
            said = "the card is never idle: work that a call left on another stream does not end"
            if self.sides.watch is not None:
                self.sides.watch.changed.append(said)
            raise TamperedError(said)
        if waited > LEFT_SECONDS and not self._told_of_work:
            self._told_of_work = True
            self.warnings.append(
                f"work that a call left on another stream was waited for: {waited:.2f} s, before rounds"
            )

    def _share_dealt(self) -> float:
        """The share of each operand that is dealt, so that dealing takes little time beside half a round.

        It draws less power than many kernels, so a card under a power limit would run faster behind it.
        """
        sets = min(len(self._sets), self.halves * self.launches) if self.samples_a_side > 1 else len(self._sets)
        affordable = DEALING * self.halves * self.launches * self._call_seconds
        dealt, words = self._deck.bytes_dealt(sets), self._deck.words_dealt(sets)
        return min(1.0, affordable / max(dealt / DEALT_BYTES_A_SECOND, words / DEALT_WORDS_A_SECOND, 1e-12))

    def _hot_sets(self, size: int, cache: int) -> int:
        """Sets that are hot: one, or as many written ones as lie in a part of the L2, where restoring puts them."""
        if self.sides.written is None:
            return 1
        return max(1, min(HOT_WRITTEN_SETS, int(HOT_SHARE * cache / max(1, size))))

    def _warming(self, side: Side, number: int) -> None:
        """Enqueue a sample that is not a part of a round."""
        if self.sides.written is not None:
            self._deck.restore(self._range(number), self.sides.written.places)
        self._reset(number)
        self._forward(side, number)
        self._enqueue(side, number, number % 2)
        self._half_ended()

    def _restore_all(self) -> None:
        if self.sides.written is not None:
            self._deck.restore(only=self.sides.written.places)

    def _note_seconds(self, seconds: list[float]) -> None:
        """Note how long a call of each side takes."""
        self._call_seconds = min(seconds)
        self.halves = 1 if sum(seconds) / 2.0 > ONE_HALF_SECONDS else 2

    def _calls_that_fit(self, result_bytes: int) -> int:
        """The calls of a sample whose results, of both sides, fit into HELD_SHARE of the free memory; at least one."""
        import torch

        free = torch.cuda.mem_get_info()[0] + torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
        return max(1, int(HELD_SHARE * self._share * free / (2 * max(1, result_bytes))))

    def _sample_seconds(self, samples: int) -> tuple[float, float]:
        """Enqueue `samples` samples of each side and wait; seconds of the candidate, and of the rival."""
        before, between, after = self._events[:3]
        before.record()
        for number in range(samples):
            self._warming("candidate", number)
        between.record()
        for number in range(samples):
            self._warming("rival", number)
        after.record()
        after.synchronize()
        one, two = before.elapsed_time(between) / 1e3, between.elapsed_time(after) / 1e3
        self._seconds += one + two
        return one, two


def spin(seconds: float) -> None:
    """Enqueue a kernel that keeps the current stream busy for about `seconds`."""
    import torch

    torch.cuda._sleep(int(seconds * SPIN_CYCLES_A_SECOND))
