"""The default clock: each side's calls captured into CUDA graphs, which are replayed in turn.

Small kernels differ by up to a percent between two captures of the same calls, by where their outputs and the graphs
themselves lie. So each side gets several graphs over the rotation, captured in mixed order, and both sides' outputs get
the same memory: a capture's outputs are given back before the next begins.
"""

from __future__ import annotations

import math
import random
import statistics
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from perfsuite.clock.base import CaptureError, ClockKind, SideFailedError, Sides, TimedCall
from perfsuite.clock.cuda import CudaClock, spin
from perfsuite.clock.rotation import share_memory
from perfsuite.clock.rounds import Side
from perfsuite.oracle import poison
from perfsuite.oracle.tensors import map_tensors
from perfsuite.settings import CacheMode

if TYPE_CHECKING:
    import torch

SAMPLE_SECONDS = 200e-6
"""Least device time of a sample. Shorter ones lose to the jitter of their ends, longer ones to drifts of the clock."""
LONGEST_SAMPLE_SECONDS = 10e-3
"""Where one side is far slower than the other, the slower sets how many calls go into a sample."""
FEWEST_GRAPHS = 4
TRIAL_CALLS = 8
TRIAL_REPLAYS = 5
GRAPH_LAUNCH_SECONDS = 75e-6
MOST_CALLS = 1024


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
        self._checked: list[tuple[int, dict[Side, Any]]] = []
        """For each graph: the place of a call that was drawn in secret, and both sides' outputs of it."""

    def _prepare(self) -> None:
        import torch

        if self._anchor is None:
            self._anchor = torch.cuda.CUDAGraph()
            self._anchor.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            torch.zeros(1, device="cuda")
            self._anchor.capture_end()
        if not self.launches:
            self._choose_launches()
        secret = random.SystemRandom()
        count = self.samples_a_side
        self._checked = [(secret.randrange(self.launches), {}) for _ in range(count)]
        self._graphs = {"candidate": [None] * count, "rival": [None] * count}
        captures: list[tuple[Side, int]] = [(side, number) for side in self._graphs for number in range(count)]
        self._order.shuffle(captures)
        for side, number in captures:
            place, outputs = self._checked[number]
            self._graphs[side][number], outputs[side] = self._capture(side, self._indices(number), place)

    def _indices(self, number: int) -> list[int]:
        """Which sets the graphs of that number use."""
        return [(number * self.launches + call) % len(self._sets) for call in range(self.launches)]

    def _choose_launches(self) -> None:
        """How many calls a sample holds, how many graphs cover the rotation, and what reading events costs."""
        indices = [call % len(self._sets) for call in range(min(TRIAL_CALLS, max(2, len(self._sets))))]
        seconds = []
        sides: list[Side] = ["candidate", "rival"]
        for side in sides:
            inside = self._inner_events()
            trial, _ = self._capture(side, indices, 0, inside)
            trial.replay()
            outer, inner = [], []
            for _ in range(TRIAL_REPLAYS):
                before, after = self._events[:2]
                spin(GRAPH_LAUNCH_SECONDS)
                before.record()
                trial.replay()
                after.record()
                after.synchronize()
                outer.append(before.elapsed_time(after) / 1e3)
                if inside is not None:
                    inner.append(inside[0].elapsed_time(inside[1]) / 1e3)
            if inner:
                self._overhead = max(0.0, statistics.median(outer) - statistics.median(inner))
            seconds.append(max((statistics.median(outer) - self._overhead) / len(indices), 1e-7))
            trial.reset()
        calls = min(math.ceil(SAMPLE_SECONDS / min(seconds)), int(LONGEST_SAMPLE_SECONDS / max(seconds)), MOST_CALLS)
        calls = max(1, calls)
        self.samples_a_side = max(FEWEST_GRAPHS, math.ceil(len(self._sets) / calls))
        # As even as can be over the rotation: no set is used far more often than the others.
        self.launches = max(calls if len(self._sets) <= calls else 1, math.ceil(len(self._sets) / self.samples_a_side))
        if self.launches * self.samples_a_side < calls * FEWEST_GRAPHS:
            self.launches = calls
        self._pairs = 1 if self.launches * min(seconds) >= 1e-3 else 2

    def _inner_events(self) -> tuple[torch.cuda.Event, torch.cuda.Event] | None:
        """Events that a graph records itself; None where this torch has none."""
        import torch

        try:
            before, after = (torch.cuda.Event(enable_timing=True, external=True) for _ in range(2))
        except TypeError:
            return None
        return before, after

    def _capture(
        self, side: Side, indices: list[int], place: int, events: tuple[Any, Any] | None = None
    ) -> tuple[Any, Any]:
        """A graph of calls on the sets `indices`, and what the call at `place` returned, as memory that is not held."""
        import torch

        graph = torch.cuda.CUDAGraph()
        self._stream.synchronize()
        graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
        failure: BaseException | None = None
        outputs = []
        try:
            if events is not None:
                events[0].record()
            for index in indices:
                outputs.append(self._call(side, self._sets[index]))
            self._plant(side)
            if events is not None:
                events[1].record()
        except SideFailedError as error:
            failure = error.cause
        try:
            graph.capture_end()
        except RuntimeError as error:
            failure = failure or error
        if failure is not None:
            raise CaptureError(side, failure) from failure
        return graph, map_tensors(outputs[place], unheld)

    def _plant(self, side: Side) -> None:
        """Nothing; a calibration plants work of known length at the end of a sample."""

    def _enqueue(self, side: Side, sample: int) -> None:
        graphs = self._graphs[side]
        graphs[sample % len(graphs)].replay()

    def _block(self, samples: int) -> None:
        spin(GRAPH_LAUNCH_SECONDS)

    def timed_calls(self, count: int) -> list[TimedCall]:
        """See `Clock`. The graphs that were timed are replayed once more, over poisoned outputs."""
        import torch

        calls = []
        with torch.cuda.stream(self._stream):
            self._freshener.freshen()
            for number in random.SystemRandom().sample(range(len(self._checked)), min(count, len(self._checked))):
                place, outputs = self._checked[number]
                inputs = self._sets[self._indices(number)[place]]
                found = {}
                for side in self._graphs:
                    if not share_memory(outputs[side], inputs):
                        poison(outputs[side])
                    self._graphs[side][number].replay()
                    found[side] = map_tensors(outputs[side], torch.clone)
                calls.append(TimedCall(inputs, found["candidate"], found["rival"]))
            changed = self._inputs_changed()
        return [replace(call, inputs_changed=changed) for call in calls]

    def _release(self) -> None:
        for graphs in self._graphs.values():
            for graph in graphs:
                if graph is not None:
                    graph.reset()
        self._graphs = {"candidate": [], "rival": []}
        self._checked = []


class _Memory:
    """A span of device memory, as others can wrap it without owning it."""

    def __init__(self, address: int, size: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (address, False),
            "strides": None,
            "version": 3,
        }


def unheld(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor over the same device memory that does not keep it: the allocator may hand it out again."""
    import torch

    if tensor.device.type != "cuda" or tensor.numel() == 0:
        return tensor
    reach = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    span = torch.as_tensor(_Memory(tensor.data_ptr(), reach * tensor.element_size()), device=tensor.device)
    return span.view(tensor.dtype).as_strided(tensor.shape, tensor.stride())
