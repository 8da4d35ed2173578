"""The clock of the portable backend: it times calls that return when their work is done."""

from __future__ import annotations

import math
import random
import statistics
import time
from dataclasses import replace
from typing import Any

from perfsuite.clock.base import CallingClock, ClockKind, SideFailedError, TimedCall
from perfsuite.clock.cache import cpu_cache_bytes
from perfsuite.clock.rotation import bytes_in, refill, sets_needed, share_memory
from perfsuite.clock.rounds import SIDES, Round, Side
from perfsuite.device.telemetry import Telemetry
from perfsuite.guards.freshen import Freshener, fingerprint, same_fingerprint
from perfsuite.guards.poison import poison
from perfsuite.problems.base import Inputs
from perfsuite.problems.tensors import keep

SAMPLE_SECONDS = 2e-3
LONGEST_SAMPLE_SECONDS = 50e-3
MOST_SETS = 64
WARM_UP_BOUND_SECONDS = 0.3
SETTLED_SPREAD = 0.05
KEPT_ROUNDS = 2
"""Rounds, besides the last, of which one timed call is kept with its inputs. They are drawn in secret."""


class HostClock(CallingClock):
    """Times by `perf_counter_ns`. Its noise is ten times that of a device's clock."""

    kind: ClockKind = "host"

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._next = 0
        self._secret = random.SystemRandom()
        self._last: list[TimedCall] = []
        self._kept: list[list[TimedCall]] = []
        self._rounds = 0

    def setup(self) -> None:
        first = self.sides.make_inputs()
        wanted = 1 if self.cache == "hot" else min(MOST_SETS, sets_needed(bytes_in(first), self._cache_bytes()))
        self._sets = self._made([first] + [self.sides.make_inputs() for _ in range(wanted - 1)])
        self.rotation = wanted
        for side in SIDES:
            self._sample(side, 0, 1)
        if not self.launches:
            once = [self._sample(side, 0, 1) for side in SIDES]
            calls = math.ceil(SAMPLE_SECONDS / max(min(once), 1e-7))
            # No set comes twice in a sample, since a candidate could cache results by the content of its inputs.
            most = calls if self.cache == "hot" else len(self._sets)
            self.launches = max(1, min(calls, most, int(LONGEST_SAMPLE_SECONDS / max(once))))
        refill(self._sets, self.sides.make_inputs)
        self._freshener = Freshener(self._sets)
        self._fingerprint = fingerprint(self._sets)
        self._warm_up()
        self._last, self._kept, self._rounds = [], [], 0
        self._setups += 1

    def rounds(self, count: int) -> list[Round]:
        rounds = []
        for _ in range(count):
            first: Side = "candidate" if self._order.random() < 0.5 else "rival"
            second: Side = "rival" if first == "candidate" else "candidate"
            start, self._next = self._next, (self._next + self.launches) % len(self._sets)
            # No inputs are seen twice, and each round has its own.
            self._freshener.freshen()
            seconds = {side: self._sample(side, start, self.launches) / self.launches for side in (first, second)}
            rounds.append(Round(seconds["candidate"], seconds["rival"], first, setup=self._setups - 1))
            self._keep()
        return rounds

    def timed_calls(self, count: int) -> list[TimedCall]:
        """See `Clock`. Of the last round and some earlier ones: the last call, and one chosen before the timing."""
        calls = [call for round_ in (self._last, *self._kept) for call in round_]
        changed = not same_fingerprint(self._fingerprint, fingerprint(self._sets))
        return [replace(call, inputs_changed=changed) for call in calls[:count]]

    def host_seconds(self) -> tuple[float | None, float | None]:
        """None for both: the host's time of a call is the time that is compared."""
        return None, None

    def telemetry(self) -> Telemetry:
        return Telemetry(clock_settled=self._settled, unknown=("everything: the host clock reads no device",))

    def close(self) -> None:
        self._sets, self._last, self._kept = [], [], []

    def _keep(self) -> None:
        """Keep the calls of this round, with their inputs, by reservoir sampling: all rounds are equally likely."""
        self._rounds += 1
        place = len(self._kept) if len(self._kept) < KEPT_ROUNDS else self._secret.randrange(self._rounds)
        if place < KEPT_ROUNDS:
            self._kept[place : place + 1] = [[replace(call, inputs=keep(call.inputs)) for call in self._last]]

    def _sample(self, side: Side, start: int, calls: int) -> float:
        """Seconds of `calls` calls of `side`, over the rotation from `start` on."""
        chosen = self._secret.randrange(calls)
        seconds, kept, output = self._run(side, start, calls, chosen)
        calls_kept = [(chosen, kept), (calls - 1, output)] if chosen < calls - 1 else [(chosen, kept)]
        results = [(self._sets[(start + call) % len(self._sets)], result) for call, result in calls_kept]
        if side == "candidate":
            # Copied at once: writes of a thread after the last call come too late.
            self._last = [TimedCall(inputs, keep(result), None) for inputs, result in reversed(results)]
        else:
            # The allocator may reuse the rival's memory for a candidate's result; it must not hold the answer.
            for inputs, result in results:
                if not share_memory(result, inputs):
                    poison(result)
        self._seconds += seconds
        return seconds

    def _cache_bytes(self) -> int:
        return cpu_cache_bytes()

    def _made(self, sets: list[Inputs]) -> list[Inputs]:
        """The sets that the clock uses; a subclass may move them to another device."""
        return sets

    def _run(self, side: Side, start: int, calls: int, chosen: int) -> tuple[float, Any, Any]:
        """(seconds of all calls together, result of the chosen call, result of the last)."""
        function, output, kept = self._function(side), None, None
        try:
            begin = time.perf_counter_ns()
            for call in range(calls):
                output = self._sets[(start + call) % len(self._sets)].call(function)
                if call == chosen:
                    kept = output
            return (time.perf_counter_ns() - begin) / 1e9, kept, output
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
