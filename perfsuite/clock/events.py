"""The clock for sides that cannot be captured: eager calls between CUDA events, behind a blocking kernel."""

from __future__ import annotations

import math
import random
import time
from dataclasses import replace
from typing import Any

from perfsuite.clock.base import ClockKind, TimedCall
from perfsuite.clock.cuda import CudaClock, spin
from perfsuite.clock.rotation import refill
from perfsuite.clock.rounds import SIDES, Side
from perfsuite.problems.tensors import keep

SAMPLE_SECONDS = 400e-6
MOST_CALLS = 64
"""The stream takes about a thousand launches before the host must wait. A round must fit behind the block."""
LONGEST_BLOCK_SECONDS = 20e-3
TRIAL_CALLS = 8
TRIAL_BLOCK_SECONDS = 300e-6
BLOCK_MARGIN = 1.5
KEPT_ROUNDS = 3
"""Rounds of which one call is kept, with its inputs, for the check."""


class EventsClock(CudaClock):
    """Times eager calls. The time of a side that waits for the device includes the host's time."""

    kind: ClockKind = "events"

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._outputs: dict[Side, dict[int, Any]] = {"candidate": {}, "rival": {}}
        self._host_seconds_a_call = 0.0
        self._secret = random.SystemRandom()
        self._kept: list[TimedCall] = []
        self._candidate_rounds = 0

    def _prepare(self) -> None:
        if not self.launches:
            self._choose_launches()
        # Results that a side has cached from its warm-up calls are stale from here on, even if it caches by address.
        refill(self._sets, self.sides.make_inputs)
        self._kept, self._candidate_rounds = [], 0

    def _choose_launches(self) -> None:
        before, after = self._events[:2]
        device, host = [], []
        for side in SIDES:
            for calls in (1, TRIAL_CALLS):
                self._stream.synchronize()
                spin(TRIAL_BLOCK_SECONDS)
                before.record()
                start = time.perf_counter()
                for call in range(calls):
                    self._call(side, self._sets[call % len(self._sets)])
                host_seconds = (time.perf_counter() - start) / calls
                after.record()
                after.synchronize()
            host.append(host_seconds)
            device.append(max(before.elapsed_time(after) / 1e3 / TRIAL_CALLS, 1e-6))
        self._host_seconds_a_call = max(host)
        self.launches = max(1, min(MOST_CALLS, math.ceil(SAMPLE_SECONDS / min(device))))
        self.samples_a_side = math.ceil(len(self._sets) / self.launches)

    def _enqueue(self, side: Side, sample: int) -> None:
        chosen = self._secret.randrange(self.launches)
        for call in range(self.launches):
            index = (sample * self.launches + call) % len(self._sets)
            output = self._call(side, self._sets[index])
            if call == chosen:
                self._outputs[side] = {index: output}

    def _after_half(self, last: Side) -> None:
        # If the candidate came last, this copy follows the call at once, and later writes of another stream miss it.
        # All such halves are equally likely to be kept. (The first is always kept.)
        if last != "candidate" and self._kept:
            return
        self._candidate_rounds += 1
        place = self._secret.randrange(self._candidate_rounds)
        if len(self._kept) < KEPT_ROUNDS:
            place = len(self._kept)
        if place < KEPT_ROUNDS:
            ((index, output),) = self._outputs["candidate"].items()
            inputs = keep(self._sets[index])
            self._kept[place : place + 1] = [TimedCall(inputs, keep(output), None)]

    def _block(self, samples: int) -> None:
        spin(min(LONGEST_BLOCK_SECONDS, BLOCK_MARGIN * samples * self.launches * self._host_seconds_a_call + 50e-6))

    def timed_calls(self, count: int) -> list[TimedCall]:
        """See `Clock`. The calls are of halves in which the candidate came last, and were chosen before the timing."""
        changed = self._inputs_changed()
        return [replace(call, inputs_changed=changed) for call in self._kept[:count]]

    def _release(self) -> None:
        self._outputs = {"candidate": {}, "rival": {}}
        self._kept = []
