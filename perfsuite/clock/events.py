"""The clock for what cannot be captured: eager calls between CUDA events, behind a kernel that blocks the stream."""

from __future__ import annotations

import math
import random
import time
from typing import Any

from perfsuite.clock.base import ClockKind, TimedCall
from perfsuite.clock.cuda import CudaClock, spin
from perfsuite.clock.rotation import share_memory
from perfsuite.clock.rounds import Side
from perfsuite.oracle import poison

SAMPLE_SECONDS = 400e-6
MOST_CALLS = 64
"""The stream takes about a thousand launches before the host has to wait; a round must fit behind the block."""
LONGEST_BLOCK_SECONDS = 20e-3
TRIAL_CALLS = 8
TRIAL_BLOCK_SECONDS = 300e-6
BLOCK_MARGIN = 1.5


class EventsClock(CudaClock):
    """Times eager calls. A side that waits for the device inside its call shows the host's time as well."""

    kind: ClockKind = "events"

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._outputs: dict[Side, dict[int, Any]] = {"candidate": {}, "rival": {}}
        self._host_seconds_a_call = 0.0

    def _prepare(self) -> None:
        if self.launches:
            return
        before, after = self._events[:2]
        device, host = [], []
        for side in ("candidate", "rival"):
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
        for call in range(self.launches):
            index = (sample * self.launches + call) % len(self._sets)
            output = self._call(side, self._sets[index])
            if call == 0:
                self._outputs[side] = {index: output}

    def _block(self, samples: int) -> None:
        spin(min(LONGEST_BLOCK_SECONDS, BLOCK_MARGIN * samples * self.launches * self._host_seconds_a_call + 50e-6))

    def _after_refill(self) -> None:
        # What the warm-up returned may come back as the memory of a timed output: it must not hold the answer.
        for side, kept in self._outputs.items():
            for index, output in kept.items():
                if not share_memory(output, self._sets[index]):
                    poison(output)
            self._outputs[side] = {}

    def timed_calls(self, count: int) -> list[TimedCall]:
        """See `Clock`."""
        both = sorted(self._outputs["candidate"].keys() & self._outputs["rival"].keys())
        chosen = random.SystemRandom().sample(both, min(count, len(both)))
        return [
            TimedCall(self._sets[index], self._outputs["candidate"][index], self._outputs["rival"][index])
            for index in chosen
        ]

    def _release(self) -> None:
        self._outputs = {"candidate": {}, "rival": {}}
