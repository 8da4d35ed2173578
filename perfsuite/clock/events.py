"""The clock for sides that cannot be captured: eager calls between CUDA events, behind a blocking kernel."""

from __future__ import annotations

import math
import time
from typing import Any

from perfsuite.clock.base import ClockKind
from perfsuite.clock.cuda import CudaClock, spin
from perfsuite.clock.rounds import SIDES, Side
from perfsuite.guards.poison import poison_free_memory
from perfsuite.problems.tensors import tensors_in

SAMPLE_SECONDS = 400e-6
MOST_CALLS = 64
"""The stream takes about a thousand launches before the host must wait. A round must fit behind the block."""
LONGEST_BLOCK_SECONDS = 20e-3
TRIAL_CALLS = 8
TRIAL_BLOCK_SECONDS = 300e-6
BLOCK_MARGIN = 1.5


class EventsClock(CudaClock):
    """Times eager calls. The time of a side that waits for the device includes the host's time."""

    kind: ClockKind = "events"

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._outputs: dict[Side, list[Any]] = {"candidate": [], "rival": []}
        self._host_seconds_a_call = 0.0
        self._whole: list[int] = []
        """The calls of the last sample whose results no later call has overwritten."""
        self._like: list[Any] = []
        """A result of the last sample, for the sizes of the next ones."""

    def _prepare(self) -> None:
        if not self.launches:
            self._choose_launches()
        self.samples_a_side = math.ceil(len(self._sets) / self.launches)

    def _choose_launches(self) -> None:
        before, after = self._events[:2]
        device, host = [], []
        for side in SIDES:
            for calls in (1, self._most_in_a_sample(TRIAL_CALLS)):
                self._restore_all()
                self._reset(0)
                for call in range(calls):
                    self._ready(side, self._sets[call % len(self._sets)])
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
            device.append(max(before.elapsed_time(after) / 1e3 / calls, 1e-6))
        self._host_seconds_a_call = max(host)
        self._note_seconds(device)
        most = max(1, min(MOST_CALLS, self._most_calls, math.ceil(SAMPLE_SECONDS / min(device))))
        self.launches = self._most_in_a_sample(most)

    def _start(self, sample: int) -> int:
        return sample * self.launches

    def _enqueue(self, side: Side, sample: int, place: int) -> None:
        # Held until both samples of the half are enqueued, whatever the place: each result has memory of its own.
        held = self._outputs[side]
        for call in range(self.launches):
            held.append(self._call(side, self._inputs_of(sample, call)))

    def _whole_results(self, sample: int, place: int) -> list[int]:
        return self._whole or list(range(self.launches))

    def _result(self, call: int) -> Any:
        return self._outputs["candidate"][call]

    def _poison(self, sample: int, calls: list[int], place: int) -> None:
        poison_free_memory(self._like, copies=2 * self.launches)

    def _half_ended(self) -> None:
        memory = [[tensor.data_ptr() for tensor in tensors_in(one)] for one in self._outputs["candidate"]]
        last_use = {address: call for call, one in enumerate(memory) for address in one}
        self._whole = [call for call, one in enumerate(memory) if all(last_use[address] == call for address in one)]
        self._like = self._outputs["candidate"][:1]
        self._outputs = {"candidate": [], "rival": []}
        self._look("candidate")

    def _block(self, samples: int) -> None:
        spin(min(LONGEST_BLOCK_SECONDS, BLOCK_MARGIN * samples * self.launches * self._host_seconds_a_call + 50e-6))

    def _release(self) -> None:
        self._outputs = {"candidate": [], "rival": []}
        self._whole, self._like = [], []
