"""The default clock: each side's calls captured into CUDA graphs, which are replayed in turn."""

from __future__ import annotations

import math
import random
from typing import Any

from perfsuite.clock.base import CaptureError, ClockKind, SideFailedError, Sides, TimedCall
from perfsuite.clock.cuda import CudaClock, spin
from perfsuite.clock.rotation import bytes_in, share_memory
from perfsuite.clock.rounds import Side
from perfsuite.oracle import poison
from perfsuite.settings import CacheMode

SAMPLE_SECONDS = 400e-6
"""Least device time of a sample: long enough that the gap before a graph's first kernel does not count."""
LONGEST_SAMPLE_SECONDS = 10e-3
"""Where one side is far slower than the other, the slower sets how many calls go into a sample."""
TRIAL_CALLS = 8
KEPT_OUTPUT_BYTES = 2**30
"""Outputs of all captured calls are kept up to this size a side; beyond it only those of the calls to be checked."""
CHECKED_CALLS = 4
GRAPH_LAUNCH_SECONDS = 100e-6


class GraphClock(CudaClock):
    """Times replays of CUDA graphs: no launch overhead between the calls, the same work for both sides."""

    kind: ClockKind = "graph"

    def __init__(self, sides: Sides, *, cache: CacheMode = "cold", seed: int = 0, note: str | None = None) -> None:
        import torch

        super().__init__(sides, cache=cache, seed=seed, note=note)
        # A small graph holds the pool through all set-ups: a pool that no graph uses goes back by way of cudaFree.
        self._pool = torch.cuda.graph_pool_handle()
        self._anchor: Any = None
        self._graphs: dict[Side, list[Any]] = {"candidate": [], "rival": []}
        self._kept: dict[Side, dict[int, Any]] = {"candidate": {}, "rival": {}}
        self._checked: set[int] = set()

    def _prepare(self) -> None:
        import torch

        if self._anchor is None:
            self._anchor = torch.cuda.CUDAGraph()
            self._anchor.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            torch.zeros(1, device="cuda")
            self._anchor.capture_end()
        chooser = random.SystemRandom()
        self._checked = set(chooser.sample(range(len(self._sets)), min(CHECKED_CALLS, len(self._sets))))
        if not self.launches:
            self._choose_launches()
        count = max(1, math.ceil(len(self._sets) / self.launches))
        self.samples_a_side = count
        sides: list[Side] = ["candidate", "rival"]
        self._order.shuffle(sides)
        for side in sides:
            for number in range(count):
                start = number * self.launches
                indices = [(start + call) % len(self._sets) for call in range(self.launches)]
                self._graphs[side].append(self._capture(side, indices, self._kept[side]))

    def _choose_launches(self) -> None:
        indices = [call % len(self._sets) for call in range(min(TRIAL_CALLS, max(2, len(self._sets))))]
        seconds = []
        for side in ("candidate", "rival"):
            trial = self._capture(side, indices, {})
            trial.replay()
            before, after = self._events[:2]
            before.record()
            trial.replay()
            after.record()
            after.synchronize()
            seconds.append(max(before.elapsed_time(after) / 1e3 / len(indices), 1e-7))
            trial.reset()
        calls = math.ceil(SAMPLE_SECONDS / min(seconds))
        self.launches = max(1, min(calls, int(LONGEST_SAMPLE_SECONDS / max(seconds)), 2 * 1024))
        if len(self._sets) > self.launches:
            # Equal graphs over the rotation: none with a remainder that runs sets twice as often as others.
            self.launches = math.ceil(len(self._sets) / math.ceil(len(self._sets) / self.launches))

    def _capture(self, side: Side, indices: list[int], kept: dict[int, Any]) -> Any:
        import torch

        graph = torch.cuda.CUDAGraph()
        self._stream.synchronize()
        graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
        failure: BaseException | None = None
        try:
            for index in indices:
                output = self._call(side, self._sets[index])
                if index in self._checked or bytes_in(output) * len(self._sets) <= KEPT_OUTPUT_BYTES:
                    kept[index] = output
        except SideFailedError as error:
            failure = error.cause
        try:
            graph.capture_end()
        except RuntimeError as error:
            failure = failure or error
        if failure is not None:
            raise CaptureError(side, failure) from failure
        return graph

    def _after_refill(self) -> None:
        for side in ("candidate", "rival"):
            for index, output in self._kept[side].items():
                if not share_memory(output, self._sets[index]):
                    poison(output)

    def _enqueue(self, side: Side, sample: int) -> None:
        graphs = self._graphs[side]
        graphs[sample % len(graphs)].replay()

    def _block(self, samples: int) -> None:
        spin(GRAPH_LAUNCH_SECONDS)

    def timed_calls(self, count: int) -> list[TimedCall]:
        """See `Clock`."""
        run = {index for index in self._checked if index // self.launches < max(1, self._samples)}
        chosen = random.SystemRandom().sample(sorted(run), min(count, len(run)))
        return [
            TimedCall(self._sets[index], self._kept["candidate"].get(index), self._kept["rival"].get(index))
            for index in chosen
        ]

    def _release(self) -> None:
        for graphs in self._graphs.values():
            for graph in graphs:
                graph.reset()
        self._graphs = {"candidate": [], "rival": []}
        self._kept = {"candidate": {}, "rival": {}}
