"""Paired rounds between CUDA events: dealing of inputs, order of the sides, results that are held and kept.

Half a round goes so: other values are dealt to all inputs that will be used, and the L2 is emptied of them. Then both
sides run their samples, one right after the other, each between two events of its own. All results of both samples
stay in memory until then. In halves that are drawn in secret, some of the candidate's results are copied right behind
its sample, with their inputs: they are judged later.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from perfsuite.clock.base import CallingClock, Sides, TimedCall
from perfsuite.clock.deck import Deck, put, ranges
from perfsuite.clock.kept import KeptCalls, Watched, WatchedHalf
from perfsuite.clock.room import Room
from perfsuite.clock.rounds import Round, Side
from perfsuite.clock.warmth import Probe
from perfsuite.device.telemetry import Watch
from perfsuite.problems.base import Inputs
from perfsuite.problems.tensors import keep
from perfsuite.settings import CacheMode

if TYPE_CHECKING:
    import torch

ONE_HALF_SECONDS = 4e-3
"""Rounds of longer calls have one half. The statistics then take off the effect of the order: under a power limit the
first call behind a pause is up to 8 % faster, whichever side's it is."""
HALF = 4
"""Events of half a round: every sample has two of its own."""
HARD_IN_ONE = 0.25
"""Probability that a batch of one round holds the calls on hard inputs."""
SURE_KEEPERS = 3
"""Batches that each have a half whose calls are kept. Of later ones a share has such a half."""
POISONED = 0.5
"""Probability that the results of kept calls begin as poison, not as memory was left."""


class PairedClock(CallingClock):
    """Times rounds. A subclass makes the sets of inputs and enqueues the samples."""

    samples_a_side: int = 1
    """Samples after which every set of the rotation has been used once."""

    def __init__(self, sides: Sides, *, cache: CacheMode = "cold", seed: int = 0, note: str | None = None) -> None:
        import torch

        super().__init__(sides, cache=cache, seed=seed, note=note)
        self._device = torch.cuda.current_device()
        self._stream = torch.cuda.Stream()
        self._samples = 0
        self._overhead = 0.0
        self._watch = Watch(str(torch.cuda.get_device_properties(self._device).uuid))
        self._probe = Probe()
        self._events = [torch.cuda.Event(enable_timing=True) for _ in range(3)]
        self._secret = random.SystemRandom()
        self._kept = KeptCalls()
        self._judged = 0
        self._batches = 0
        self._room = Room(sets=1, by_reference=False, kept_calls=1)
        self._hard_due = False
        self._due: list[Side] | None = None
        """The order of the next round of one half; None if it is drawn."""
        self._deck: Deck
        self._other_memory: Any = None
        self._sink: Any = None

    def _start(self, sample: int) -> int:
        """The set of the first call of that sample; its other calls use the sets that follow."""
        raise NotImplementedError

    def _enqueue(self, side: Side, sample: int, place: int) -> None:
        """Enqueue one sample of `side` on the current stream. Its results go to one of two places for results.

        The candidate's place is `place`, 0 or 1; the rival's is the other. All results stay until the half has ended.
        """
        raise NotImplementedError

    def _whole_results(self, sample: int, place: int) -> list[int]:
        """The calls of the candidate's next sample whose results no later call of the sample overwrites."""
        return list(range(self.launches))

    def _result(self, call: int) -> Any:
        """The candidate's result of that call of the sample that was enqueued last."""
        raise NotImplementedError

    def _poison(self, sample: int, calls: list[int], place: int) -> None:
        """Poison the memory of the results of these calls of the candidate's next sample."""

    def _make_room(self) -> None:
        """Free what the judging of the kept call does not need."""

    def _alone(self) -> None:
        """Bring the card to the state of a program of one stream; what is enqueued has ended."""

    def _half_ended(self) -> None:
        """Called when both samples of half a round are enqueued."""

    def _block(self, samples: int) -> None:
        """Keep the stream busy while `samples` samples are enqueued."""
        raise NotImplementedError

    def rounds(self, count: int) -> list[Round]:
        """See `Clock`. A round has two halves, A B and B A; of long calls it is one of these, and the next the other.

        The first sample of a half takes up to 8 us longer on an H200, and the clock may drift. Each side is first once.
        """
        import torch

        self._alone()
        kept = self._keeper(count * self.halves)
        # A round with hard inputs comes between the others, where nobody expects it. Its times do not count.
        hard = None
        if self._hard_due and (count > 1 or self._secret.random() < HARD_IN_ONE):
            hard, self._hard_due = self._secret.randrange(count), False
        while len(self._events) < (count + 1) * self.halves * HALF:
            self._events.append(torch.cuda.Event(enable_timing=True))
        orders: list[list[Side]] = []
        uncounted: list[list[Side]] = []
        with torch.cuda.stream(self._stream):
            for number in range(count):
                if number == hard:
                    uncounted = self._round(len(orders), hard=True)
                    orders += uncounted
                drawn = kept - number * self.halves
                orders += self._round(len(orders), drawn=drawn)
            self._probe.enqueue()
            # Read while the card is busy: an idle card reports no reason.
            invalid = self._watch.reason_against()
            self._stream.synchronize()
            clock_hz = self._watch.note_clock(self._probe.hertz())
        found = [self._read(sides, self._events_of(number)) for number, sides in enumerate(orders)]
        if hard is not None:
            del found[hard * self.halves : (hard + 1) * self.halves]
            del orders[hard * self.halves : (hard + 1) * self.halves]
        calls = self.halves * self.launches
        rounds = []
        for number in range(0, len(found), self.halves):
            halves = found[number : number + self.halves]
            one = Round(
                candidate_seconds=sum(half["candidate"] for half in halves) / calls,
                rival_seconds=sum(half["rival"] for half in halves) / calls,
                first=orders[number][0],
                setup=self._setups - 1,
                sm_clock_hz=clock_hz,
                discarded=invalid,
            )
            rounds.append(one)
        self._look_at_names()
        return rounds

    def _keeper(self, halves: int) -> int:
        """The half of the next batch whose calls are kept, drawn anew; -1 for none, which becomes more likely."""
        self._batches += 1
        if self._room.by_reference:
            return halves - 1
        if self._secret.random() * self._batches > SURE_KEEPERS:
            return -1
        return self._secret.randrange(halves)

    def _round(self, before: int, *, drawn: int = -1, hard: bool = False) -> list[list[Side]]:
        """Enqueue one round; the order of the sides in each of its halves.

        before: halves enqueued before it in this batch. drawn: the half of this round whose calls are kept, if it has
        that half. hard: calls get hard inputs, and all of these are kept.
        """
        order: list[Side] = ["candidate", "rival"] if self._order.random() < 0.5 else ["rival", "candidate"]
        orders = [order, order[::-1]]
        if self.halves == 1:
            orders = [self._due or order]
            self._due = None if self._due else order[::-1]
        # The two places for results change hands between the halves, so addresses favour no side.
        place = self._order.randrange(2)
        for half, sides in enumerate(orders):
            keeper = half == drawn or (hard and half == len(orders) - 1)
            self._half(before + half, sides, place ^ half, keeper=keeper, hard=hard and keeper)
        return orders

    def _half(self, number: int, sides: list[Side], place: int, *, keeper: bool, hard: bool) -> None:
        """Enqueue both samples of half a round. keeper: some of the candidate's calls are kept for the checks."""
        samples = {side: self._samples + turn for turn, side in enumerate(sides)}
        self._samples += len(sides)
        used = None
        if self.samples_a_side > 1:
            used = [part for sample in samples.values() for part in self._range(sample)]
        # No values are seen twice, so results kept from an earlier half are useless. This comes before the block, which
        # gives the host time to enqueue the timed work.
        self._deck.deal(used)
        mine = samples["candidate"]
        watched = self._watch_calls(mine, place, hard=hard) if keeper else None
        for side in sides:
            self._forward(side, samples[side])
        self._evict()
        if not number or self.kind == "events":
            self._block(2)
        events = self._events_of(number)
        for turn, side in enumerate(sides):
            if turn:
                self._restore(samples[side])
                if self._room.sides_share_sets:
                    self._evict()
                if hard and side == "candidate" and watched is not None:
                    watched.put_again()  # the values of the last deal lie there now
            self._reset(samples[side])
            events[2 * turn].record()
            self._enqueue(side, samples[side], place)
            events[2 * turn + 1].record()
            if side == "candidate" and watched is not None:
                # Copied right behind the sample, so that writes of another stream come too late.
                self._keep(watched)
        self._half_ended()

    def _watch_calls(self, sample: int, place: int, *, hard: bool) -> WatchedHalf:
        """Draw calls of the candidate's next sample, and note their inputs.

        hard: each hard distribution gets a call. A coin decides whether the results begin as poison, or as memory was
        left: a side that computes only over poison does not know.
        """
        able = self._whole_results(sample, place)
        calls = self._kept.draw(able)
        names: list[str | None] = [None] * len(calls)
        if hard:
            kinds = list(self.sides.hard)
            calls = self._secret.sample(able, min(len(kinds), len(able)))
            names = list(self._secret.sample(kinds, len(calls)))
            for call, name in zip(calls, names, strict=True):
                put(self._inputs_of(sample, call), self.sides.hard[str(name)]())
        if self._secret.random() < POISONED:
            self._poison(sample, calls, place)
        watched = []
        for call, name in zip(calls[: 1 if self._room.by_reference else None], names, strict=False):
            live = self._inputs_of(sample, call)
            # Written inputs are never kept by reference.
            inputs = live if self._room.by_reference else keep(live)
            watched.append(Watched(call, inputs, live, self._written_of(live), name))
        return WatchedHalf(watched)

    def _written_of(self, inputs: Inputs) -> Sequence[torch.Tensor]:
        return () if self.sides.written is None else self.sides.written.tensors(inputs)

    def _keep(self, half: WatchedHalf) -> None:
        """Keep these calls of the candidate's sample that was enqueued last."""
        for one in half.watched:
            answer = self._answered(self._result(one.call), one.live)
            self._kept.keep(one, half, TimedCall(one.inputs, answer, None, distribution=one.distribution))
        half.ended()

    def _restore(self, sample: int) -> None:
        """Restore what a side has written into the sets of that sample, and leave none of it in the L2."""
        if self.sides.written is not None:
            self._deck.restore(self._range(sample), self.sides.written.places)
            self._evict()

    def _forward(self, side: Side, sample: int) -> None:
        """Enqueue the forward passes of that sample's calls, if the side's backward alone is timed."""
        for call in range(min(self.launches, len(self._sets))):
            self._ready(side, self._inputs_of(sample, call))

    def _reset(self, sample: int) -> None:
        if self.sides.reset is not None:
            self.sides.reset(self._inputs_of(sample, 0))

    def timed_calls(self, count: int) -> list[TimedCall]:
        """See `Clock`. Inputs and results are copies that were made right behind the timed samples."""
        import torch

        if self._hard_due:
            self._hard_due = False
            with torch.cuda.stream(self._stream):
                self._round(0, hard=True)
                self._stream.synchronize()
            self._look_at_names()
        self._kept.shuffle()
        self._judged = count
        if self._room.by_reference:
            self._make_room()
        return self._kept.ordinary(count) + self._kept.hard()

    def look_at_more(self, count: int, look: Callable[[Any, Any], Any]) -> list[Any]:
        """See `Clock`. The rival's results are made now, on the copies of the inputs."""
        import torch

        with torch.cuda.stream(self._stream):
            found: list[Any] = self._kept.looked_at(self._judged, count, self._rivals_answer, look)
            self._stream.synchronize()
        return found

    def _inputs_of(self, sample: int, call: int) -> Inputs:
        return self._sets[(self._start(sample) + call) % len(self._sets)]

    def _range(self, sample: int) -> list[tuple[int, int]]:
        return ranges(self._start(sample), self.launches, len(self._sets))

    def _evict(self) -> None:
        """Read other memory, so that the L2 holds nothing of what was dealt: it would serve the first side alone."""
        import torch

        if self.cache == "cold":
            torch.amax(self._other_memory, 0, out=self._sink)

    def _events_of(self, half: int) -> list[Any]:
        """The events of that half of the rounds that are being timed."""
        return self._events[half * HALF : (half + 1) * HALF]

    def _read(self, sides: list[Side], events: list[Any]) -> dict[Side, float]:
        """Seconds of each side's sample between its two events."""
        found: dict[Side, float] = {}
        for turn, side in enumerate(sides):
            seconds = events[2 * turn].elapsed_time(events[2 * turn + 1]) / 1e3
            self._seconds += seconds
            found[side] = max(seconds - self._overhead, 1e-9)
        return found
