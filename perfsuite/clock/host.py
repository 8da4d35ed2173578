"""The clock of the portable backend: it times calls that return when their work is done."""

from __future__ import annotations

import math
import random
import resource
import statistics
import time
from collections.abc import Callable
from typing import Any

from perfsuite.clock.base import CallingClock, ClockKind, SideFailedError, TimedCall
from perfsuite.clock.cache import cpu_cache_bytes
from perfsuite.clock.deck import Deck, put, ranges
from perfsuite.clock.kept import KeptCalls, Watched, WatchedHalf
from perfsuite.clock.room import kept_calls
from perfsuite.clock.rotation import allocations, bytes_in, sets_needed, share_memory
from perfsuite.clock.rounds import SIDES, Round, Side
from perfsuite.device.telemetry import Telemetry
from perfsuite.guards.as_they_are import AbsentError, as_they_are
from perfsuite.guards.poison import poison_results
from perfsuite.guards.recompiles import compiling
from perfsuite.problems.base import Inputs
from perfsuite.problems.differentiated import needs_preparing
from perfsuite.problems.tensors import keep

SAMPLE_SECONDS = 5e-4
"""Shorter than the time slices of a busy machine."""
LONGEST_SAMPLE_SECONDS = 50e-3
MOST_SETS = 64
WARM_UP_BOUND_SECONDS = 0.3
SETTLED_SPREAD = 0.05
HELD_BYTES = 1 << 28
"""Bytes of the results of a round, of both sides."""
HARD_IN_ONE = 0.25
"""Probability that a batch of one round holds the calls on hard inputs."""
MOST_REPEATS = 5
"""Rounds that follow one in which the system took the processor away, until one is left alone."""
REPEATS_A_ROUND = 1.0
"""Repeats, over all rounds so far. More of them would spend the time of a case on a busy machine, and leave too few
rounds to decide even what is plain."""


MOST_OF_SUSPECTS = 200
"""Rounds behind the timing, at most, that show whether a thread is busy in the rival's calls alone."""
CUT_ROUNDS = 2
"""Rounds of drawn length behind each batch of a candidate that reuses its output: as many calls as others keep."""
REUSES = "the candidate returns the same memory again: only the last results of samples of drawn length are judged"


class HostClock(CallingClock):
    """Times by `perf_counter_ns`. Its noise is ten times that of a device's clock.

    A round in which another process got this one's processor is measured again: a time slice of milliseconds in one
    sample would multiply the time of its side.
    """

    kind: ClockKind = "host"

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._next = 0
        self._secret = random.SystemRandom()
        self._kept = KeptCalls(as_they_are)
        self._judged = 0
        self._quiet_rounds = self._repeats = 0
        self._interrupted = 0
        """The times at which the processor was taken away in the samples of the last round."""
        self._hard_due: list[str] = []
        self._reuses = False
        """True once a result of the candidate was overwritten by a later one of the same sample."""
        self._held: dict[Side, list[Any]] = {"candidate": [], "rival": []}
        self._is_an_input: Callable[[int], bool] = allocations(())

    def setup(self) -> None:
        first = self.sides.make_inputs()
        self._forget()
        size = bytes_in(first) + self._kept_for_backward(first)
        wanted = 1 if self.cache == "hot" else min(MOST_SETS, sets_needed(size, self._cache_bytes()))
        self._kept.most = kept_calls(size)
        moves, written, integers = self.sides.moves, self._written_places, self.sides.integers
        self._deck = Deck(self.sides.make_inputs, first, wanted, moves, written=written, integers=integers)
        self._sets = self._placed(self._deck)
        self.rotation = wanted
        compiling(lambda: [self._sample(side, 0, 1) for side in SIDES], self.warnings, again=True)
        if not self.launches:
            once = [self._call_seconds(side) for side in SIDES]
            calls = math.ceil(SAMPLE_SECONDS / max(min(once), 1e-7))
            # No set comes twice in a sample, since a candidate could cache results by the content of its inputs.
            most = calls if self.cache == "hot" else len(self._sets)
            size = max(bytes_in(results) for results in self._held.values())
            fit = HELD_BYTES // max(1, 2 * size)
            most = min(calls, most, fit, int(LONGEST_SAMPLE_SECONDS / max(once)))
            self.launches = self._most_in_a_sample(max(1, most))
        self._is_an_input = allocations(self._sets)
        self._deck.deal()
        self._warm_up()
        self._setups += 1
        self._hard_due = list(self.sides.hard) if self._deck.moves else []

    def _call_seconds(self, side: Side) -> float:
        """About how long a call takes."""
        return self._sample(side, 0, 1)

    def rounds(self, count: int) -> list[Round]:
        rounds: list[Round] = []
        if self.sides.watch is not None:
            self.sides.watch.company.batch()
        drawn, hard = self._secret.randrange(count), self._secret.randrange(count)
        for number in range(count):
            if number == hard and (count > 1 or self._secret.random() < HARD_IN_ONE):
                self._hard_rounds()
            # The last one too: a candidate that is honest for so many calls and never again is judged behind them.
            keeper = number in (drawn, count - 1)
            rounds.append(self._quiet_round(keeper=keeper and not self._reuses))
            if number == drawn and self._reuses:
                for _ in range(CUT_ROUNDS):
                    self._round(keeper=True)
        self._look_at_names()
        return rounds

    def _quiet_round(self, *, keeper: bool) -> Round:
        """A round without interruption; the least interrupted of several, if none was without."""
        tried: list[tuple[int, Round]] = []
        self._quiet_rounds += 1
        while True:
            one = self._round(keeper=keeper)
            tried.append((self._interrupted, one))
            spent = self._repeats > REPEATS_A_ROUND * self._quiet_rounds
            if not self._interrupted or len(tried) > MOST_REPEATS or spent:
                break
            self._repeats += 1
        return min(tried, key=lambda one: one[0])[1]

    def _round(self, *, keeper: bool, hard: str | None = None) -> Round:
        """One round. keeper: two of the candidate's calls are kept, the last and one that is drawn before it.

        Of a candidate that reuses its output only the last is kept. The round then has a drawn number of calls: at no
        call does the candidate know that this one is not the last. Its times do not count.
        """
        first: Side = "candidate" if self._order.random() < 0.5 else "rival"
        second: Side = "rival" if first == "candidate" else "candidate"
        calls = self._secret.randint(1, self.launches) if keeper and self._reuses else self.launches
        start, self._next = self._next, (self._next + calls) % len(self._sets)
        places = ranges(start, calls, len(self._sets))
        self._hand_out(places)
        seconds: dict[Side, float] = {}
        before = interruptions()
        for side in (first, second):
            keep_here = keeper and side == "candidate"
            seconds[side] = self._sample(side, start, calls, keeper=keep_here, hard=hard) / calls
        self._interrupted = interruptions() - before
        # The allocator may reuse the rival's memory for a candidate's result; it must not hold the answer. A result in
        # the memory of an input is that input.
        poison_results(self._held["rival"], self._is_an_input)
        self._held = {"candidate": [], "rival": []}
        # These sets get other values long before they are used again, when the values have left the cache.
        self._deck.deal(places)
        return Round(seconds["candidate"], seconds["rival"], first, setup=self._setups - 1)

    def _hard_rounds(self) -> None:
        """Rounds like all others but for one call on hard inputs each. Their times do not count."""
        while self._hard_due:
            hard, known = self._hard_due.pop(), self._reuses
            self._round(keeper=True, hard=hard)
            if self._reuses and not known:  # the result on hard inputs was overwritten
                self._hard_due.append(hard)

    def timed_calls(self, count: int) -> list[TimedCall]:
        """See `Clock`. The calls are of rounds that were drawn before the timing."""
        more = 0 if self.sides.watch is None else MOST_OF_SUSPECTS
        while more and self.sides.watch is not None and self.sides.watch.company.suspected():
            self._round(keeper=False)
            more -= 1
        if self._hard_due or more < MOST_OF_SUSPECTS:
            self._hard_rounds()
            self._look_at_names()
        self._kept.shuffle()
        self._judged = count
        return self._kept.ordinary(count) + self._kept.hard()

    def look_at_more(self, count: int, look: Callable[[Any, Any], Any]) -> list[Any]:
        """See `Clock`. The rival's results are made now, on the copies of the inputs."""
        found: list[Any] = self._kept.looked_at(self._judged, count, self._rivals_answer, look)
        return found

    def host_seconds(self) -> tuple[float | None, float | None]:
        """None for both: the host's time of a call is the time that is compared."""
        return None, None

    def telemetry(self) -> Telemetry:
        return Telemetry(clock_settled=self._settled, unknown=("everything: the host clock reads no device",))

    def close(self) -> None:
        self._sets = []
        self._forget()
        self._kept.clear()

    def _sample(self, side: Side, start: int, calls: int, *, keeper: bool = False, hard: str | None = None) -> float:
        """Seconds of `calls` calls of `side`, over the rotation from `start` on. hard: inputs of the call drawn."""
        chosen = self._secret.randrange(calls) if keeper and not self._reuses else calls - 1
        watched = [self._sets[(start + call) % len(self._sets)] for call in (chosen, calls - 1)]
        kept: list[Watched] = []
        written = self.sides.written
        if written is not None:  # before the samples of both sides, so that it is in the cache for both or for neither
            self._restore(side, ranges(start, calls, len(self._sets)))
        if keeper:
            if hard is not None:
                put(watched[0], self.sides.hard[hard]())
            for call, live in zip((chosen, calls - 1), watched, strict=True):
                touched = () if written is None else written.tensors(live)
                kept.append(Watched(call, keep(live), live, touched, hard))
        half = WatchedHalf(kept) if keeper else None
        if self.sides.reset is not None:
            self.sides.reset(self._sets[start % len(self._sets)])
        for call in range(min(calls, len(self._sets)) if needs_preparing(self._function(side)) else 0):
            self._ready(side, self._sets[(start + call) % len(self._sets)])
        watch = self.sides.watch
        before = None if watch is None else watch.company.now()
        seconds, *outputs = self._run(side, start, calls, chosen if keeper else None)
        if watch is not None:
            watch.company.used(side, before, seconds)
            watch.company.began(side)
            watch.modes()
        if half is not None:
            # Copied at once: writes of a thread after the last call come too late.
            several = chosen < calls - 1 and hard is None
            for one, output in list(zip(kept, outputs, strict=True))[: 1 + several]:
                timed = TimedCall(one.inputs, self._answered(output, one.live), None, distribution=hard)
                try:
                    self._kept.keep(one, half, timed)
                except AbsentError as error:
                    raise SideFailedError("candidate", error) from error
            half.ended()
            if self._overwritten(chosen, kept[0].live):
                self._kept.drop(half)
        self._look(side)
        self._seconds += seconds
        return seconds

    def _overwritten(self, chosen: int, inputs: Inputs) -> bool:
        """True if the chosen call's result was overwritten in the same sample, for the first time.

        From then on the candidate's samples have drawn lengths where they are judged.
        """
        if self._reuses or not self._later_wrote(chosen, inputs):  # of one that reuses, the chosen call is the last
            return False
        self._reuses = True
        self.warnings += [] if REUSES in self.warnings else [REUSES]
        return True

    def _later_wrote(self, chosen: int, inputs: Inputs) -> bool:
        """True if a later call of the candidate's last sample wrote to the chosen result, which is not its input."""
        held = self._held["candidate"]
        try:
            return share_memory(held[chosen], held[chosen + 1 :]) and not share_memory(held[chosen], inputs)
        except RuntimeError:  # a result without an address, such as a sparse one, which the oracle judges
            return False

    def _cache_bytes(self) -> int:
        return cpu_cache_bytes()

    def _placed(self, deck: Deck) -> list[Inputs]:
        """The sets that the sides get; a subclass may copy those of the deck to other memory."""
        return deck.sets

    def _hand_out(self, places: list[tuple[int, int]]) -> None:
        """Called before a round with the stretches of its sets: a subclass may give them their values only now."""

    def _restore(self, side: Side, places: list[tuple[int, int]]) -> None:
        """Restore what calls write in the sets of that side."""
        self._deck.restore(places, self._written_places)

    def _run(self, side: Side, start: int, calls: int, chosen: int | None) -> tuple[float, Any, Any]:
        """(seconds of all calls together, result of the chosen call, result of the last); None for no chosen call."""
        function = self._function(side)
        # All results of a round stay in memory until it has ended, so that no side sees which of them count.
        self._held[side] = held = []
        now = time.perf_counter_ns  # a call may replace it
        try:
            begin = now()
            for call in range(calls):
                held.append(self._sets[(start + call) % len(self._sets)].call(function))
            seconds = (now() - begin) / 1e9
            return seconds, None if chosen is None else held[chosen], held[-1]
        except Exception as error:
            raise SideFailedError(side, error) from error

    def _warm_up(self) -> None:
        """Run both sides until three samples agree, or until the time is up."""
        start = time.perf_counter()
        times: list[float] = []
        while time.perf_counter() - start < WARM_UP_BOUND_SECONDS:
            times.append(sum(self._sample(side, 0, self.launches) for side in SIDES))
            recent = times[-3:]
            if len(recent) == 3 and max(recent) - min(recent) <= SETTLED_SPREAD * statistics.median(recent):
                self._settled = True
                return
        self._settled = False


def interruptions() -> int:
    """The times at which the system took a processor away from a thread of this process, so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw
