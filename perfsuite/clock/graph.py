"""The default clock: each side's calls captured into CUDA graphs, which are replayed in turn.

A sample is one pass over the whole rotation, if that is short enough. Both sides then use all inputs equally, and no
input is read again before all others. A sample consists of several graphs, with several captures of each: small kernels
differ by up to a percent between two captures of the same calls. Captures of both sides come in mixed order. Each gives
its outputs' memory back before the next begins, so both sides write to the same addresses.
"""

from __future__ import annotations

import itertools
import math
import random
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from perfsuite.clock.base import CaptureError, ClockKind, SideFailedError, TimedCall
from perfsuite.clock.cuda import CudaClock, spin
from perfsuite.clock.memory import free_default_generator, unheld
from perfsuite.clock.rotation import share_memory
from perfsuite.clock.rounds import SIDES, Side
from perfsuite.guards.poison import poison
from perfsuite.problems.tensors import keep, map_tensors

SAMPLE_SECONDS = 200e-6
"""Least device time of a sample."""
LONGEST_ROTATION_SECONDS = 0.8e-3
"""A longer pass over the rotation is cut, and samples take its parts in turn."""
LONGEST_SAMPLE_SECONDS = 10e-3
"""If one side is far slower than the other, the slower one limits the calls of a sample."""
PIECE_SECONDS = 150e-6
FEWEST_GRAPHS = 8
SHORT_CALL_SECONDS = 50e-6
"""For shorter calls a side has at least FEWEST_GRAPHS graphs: more pieces, or more captures of each."""
MOST_CALLS = 2048
TRIAL_CALLS = 8
TRIAL_REPLAYS = 5
LONG_CALL_SECONDS = 250e-6
"""One call of at least this time is measured alone."""
TRIAL_SECONDS = 1e-3
COST_REPLAYS = 7
GRAPH_LAUNCH_SECONDS = 75e-6
MORE_SECONDS = 10e-3
"""Device time for further looks at timed calls."""
PLACES = 4
"""Calls of a graph whose outputs can be looked at."""


@dataclass
class Piece:
    """Calls that make one graph, captured several times for each side."""

    indices: list[int]
    """The sets of inputs, in order."""
    last: bool
    """True for the last piece of a sample."""
    graphs: dict[Side, list[Any]] = field(default_factory=lambda: {"candidate": [], "rival": []})
    outputs: dict[Side, list[Any]] = field(default_factory=lambda: {"candidate": [], "rival": []})
    """Results of the calls at `places`, one list for each capture, as tensors that do not own their memory."""
    places: list[int] = field(default_factory=list)
    """Calls drawn in secret for the check."""


class GraphClock(CudaClock):
    """Times replays of CUDA graphs: no launch overhead between the calls, the same work for both sides."""

    kind: ClockKind = "graph"

    def __init__(self, *arguments: Any, **options: Any) -> None:
        import torch

        super().__init__(*arguments, **options)
        # A small graph keeps the pool alive through all set-ups. A pool without a graph is released by cudaFree.
        self._pool = torch.cuda.graph_pool_handle()
        self._anchor: Any = None
        self._call_seconds = 0.0
        self._gap = 0.0
        self._tracks: list[list[Piece]] = []
        """Samples replay the tracks in turn, and the pieces of a track one after another."""
        self._pieces: list[Piece] = []
        self._named: Piece | None = None
        """A piece drawn in secret, whose first graphs can list their kernels."""

    def _prepare(self) -> None:
        import torch

        if self._anchor is None:
            self._anchor = torch.cuda.CUDAGraph()
            self._anchor.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            torch.zeros(1, device="cuda")
            self._anchor.capture_end()
            self._measure_costs()
        if not self.launches:
            self._choose_launches()
        self._tracks = self._plan()
        self.samples_a_side = len(self._tracks)
        self._pieces = [piece for track in self._tracks for piece in track]
        secret = random.SystemRandom()
        each = math.ceil(FEWEST_GRAPHS / len(self._pieces)) if self._call_seconds < SHORT_CALL_SECONDS else 1
        captures = [(piece, side) for piece in self._pieces for side in SIDES] * each
        self._order.shuffle(captures)
        for piece in self._pieces:
            piece.places = secret.sample(range(len(piece.indices)), min(PLACES, len(piece.indices)))
        self._named = secret.choice(self._pieces)
        for piece, side in captures:
            nodes = piece is self._named and not piece.graphs[side]
            graph, outputs = self._capture(side, piece.indices, piece.places, last=piece.last, nodes=nodes)
            piece.graphs[side].append(graph)
            piece.outputs[side].append(outputs)
        self._overhead = self._event_cost + (len(self._tracks[0]) - 1) * self._gap

    def _plan(self) -> list[list[Piece]]:
        """The tracks, without graphs: one pass over the rotation, or several parts of it."""
        count = len(self._sets)
        tracks = 1 if self.launches >= count else math.ceil(count / self.launches)
        planned = []
        for track in range(tracks):
            calls = [(track * self.launches + call) % count for call in range(self.launches)]
            pieces = max(1, min(len(calls), round(len(calls) * self._call_seconds / PIECE_SECONDS)))
            ends = [round(len(calls) * part / pieces) for part in range(pieces + 1)]
            parts = [calls[start:end] for start, end in itertools.pairwise(ends)]
            planned.append([Piece(part, last=part is parts[-1]) for part in parts])
        return planned

    def _choose_launches(self) -> None:
        """Set `launches`, the number of calls in a sample."""
        count = len(self._sets)
        indices = [call % count for call in range(min(TRIAL_CALLS, max(2, count)))]
        found = []
        for side in SIDES:
            seconds = self._trial(side, [0])
            found.append(seconds if seconds >= LONG_CALL_SECONDS else self._trial(side, indices))
        self._call_seconds, slower = min(found), max(found)
        rotation = count * self._call_seconds
        if rotation <= LONGEST_ROTATION_SECONDS and count * slower <= LONGEST_SAMPLE_SECONDS and count <= MOST_CALLS:
            self.launches = min(count * math.ceil(SAMPLE_SECONDS / rotation), MOST_CALLS)
        else:
            self.launches = math.ceil(SAMPLE_SECONDS / self._call_seconds)
        self.launches = max(1, min(self.launches, int(LONGEST_SAMPLE_SECONDS / slower)))

    def _trial(self, side: Side, indices: list[int]) -> float:
        """Seconds a call, from a few replays of a small graph."""
        trial, _ = self._capture(side, indices, [], last=False)
        trial.replay()
        found: list[float] = []
        while sum(found) < TRIAL_SECONDS and len(found) < TRIAL_REPLAYS:
            found.append(self._replayed(trial, 1))
        trial.reset()
        return max((statistics.median(found) - self._event_cost) / len(indices), 1e-7)

    def _replayed(self, graph: Any, times: int) -> float:
        """Seconds between events around `times` replays."""
        before, after = self._events[:2]
        spin(GRAPH_LAUNCH_SECONDS)
        before.record()
        for _ in range(times):
            graph.replay()
        after.record()
        after.synchronize()
        return float(before.elapsed_time(after)) / 1e3

    def _measure_costs(self) -> None:
        """Measure the cost of a pair of events around a replay, and the gap between two replays.

        Both come from a graph of one tiny kernel that records events itself. They stay 0 if torch has no such events.
        """
        import torch

        try:
            inner = [torch.cuda.Event(enable_timing=True, external=True) for _ in range(2)]
        except TypeError:
            return
        number = torch.zeros(1, device="cuda")
        tiny = torch.cuda.CUDAGraph()
        self._stream.synchronize()
        tiny.capture_begin(pool=self._pool, capture_error_mode="thread_local")
        inner[0].record()
        number.add_(1.0)
        inner[1].record()
        tiny.capture_end()
        tiny.replay()
        costs, gaps = [], []
        for _ in range(COST_REPLAYS):
            once = self._replayed(tiny, 1)
            inside = inner[0].elapsed_time(inner[1]) / 1e3
            costs.append(once - inside)
            gaps.append(self._replayed(tiny, 2) - once - inside)
        tiny.reset()
        self._event_cost = max(0.0, statistics.median(costs))
        self._gap = max(0.0, statistics.median(gaps))

    def _capture(
        self, side: Side, indices: list[int], places: list[int], *, last: bool, nodes: bool = False
    ) -> tuple[Any, list[Any]]:
        """A graph of calls on the sets `indices`, and the results of the calls at `places`, which own no memory.

        nodes: keep the graph's nodes, so that they can be listed later.
        """
        import torch

        graph = torch.cuda.CUDAGraph(keep_graph=nodes)
        self._stream.synchronize()
        graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
        failure: BaseException | None = None
        outputs = []
        try:
            for index in indices:
                outputs.append(self._call(side, self._sets[index]))
            if last:
                self._plant(side)
        except SideFailedError as error:
            failure = error.cause
        try:
            graph.capture_end()
        except RuntimeError as error:
            failure = failure or error
        if failure is not None:
            free_default_generator(self._device)
            raise CaptureError(side, failure) from failure
        return graph, [map_tensors(outputs[place], unheld) for place in places]

    def _plant(self, side: Side) -> None:
        """Do nothing; a calibration plants work of known length at the end of a sample."""

    def _enqueue(self, side: Side, sample: int) -> None:
        for piece in self._tracks[sample % len(self._tracks)]:
            self._order.choice(piece.graphs[side]).replay()

    def _touch(self) -> None:
        before, after = self._events[:2]
        before.record()
        for piece in self._pieces:
            for graph in itertools.chain(*piece.graphs.values()):
                graph.replay()
        after.record()
        after.synchronize()
        self._seconds += before.elapsed_time(after) / 1e3

    def _block(self, samples: int) -> None:
        spin(GRAPH_LAUNCH_SECONDS)

    def timed_calls(self, count: int) -> list[TimedCall]:
        """See `Clock`. Timed graphs are replayed once more, on changed inputs, over poisoned outputs.

        Results that a side has cached in its warm-up or capture are therefore stale, even if it caches by address.
        """
        import torch

        secret, calls = random.SystemRandom(), []
        with torch.cuda.stream(self._stream):
            self._freshener.freshen()
            for piece in secret.sample(self._pieces, min(count, len(self._pieces))):
                at = secret.randrange(len(piece.places))
                inputs = self._sets[piece.indices[piece.places[at]]]
                found = {}
                for side in piece.graphs:
                    capture = secret.randrange(len(piece.graphs[side]))
                    output = piece.outputs[side][capture][at]
                    if not share_memory(output, inputs):
                        poison(output)
                    piece.graphs[side][capture].replay()
                    found[side] = keep(output)
                calls.append(TimedCall(inputs, found["candidate"], found["rival"]))
            changed = self._inputs_changed()
            self._stream.synchronize()
        return [replace(call, inputs_changed=changed) for call in calls]

    def look_at_more(self, count: int, look: Callable[[Any, Any], Any]) -> list[Any]:
        """See `Clock`. A coin decides for each output: it is poisoned before, or left as it was during the timing.

        A side that computes only in some calls, or only over poison, cannot know these calls. One replay gives the
        outputs of all places of its graph.
        """
        import torch

        secret, found, first = random.SystemRandom(), [], self._pieces[0]
        # By the time of the faster side: a slow side does not get fewer looks.
        affordable = MORE_SECONDS / max(2 * len(first.indices) * self._call_seconds, 1e-9)
        replays = math.ceil(count / len(first.places))
        with torch.cuda.stream(self._stream):
            for piece in secret.choices(self._pieces, k=max(2, min(replays, int(affordable)))):
                self._freshener.freshen()
                poisoned = [secret.random() < 0.5 for _ in piece.places]
                outputs: dict[Side, list[Any]] = {}
                for side in piece.graphs:
                    capture = secret.randrange(len(piece.graphs[side]))
                    outputs[side] = piece.outputs[side][capture]
                    for place, output, poison_it in zip(piece.places, outputs[side], poisoned, strict=True):
                        if poison_it and not share_memory(output, self._sets[piece.indices[place]]):
                            poison(output)
                    piece.graphs[side][capture].replay()
                    if side == "candidate":  # both sides may write to the same places
                        outputs[side] = [keep(output) for output in outputs[side]]
                found += [look(*pair) for pair in zip(outputs["candidate"], outputs["rival"], strict=True)]
            self._stream.synchronize()
        return found[:count]

    def kernels(self) -> tuple[set[str], set[str]] | None:
        from perfsuite.guards.kernel_names import kernels_in

        if self._named is None:
            return None
        mine, rivals = ({name for name in kernels_in(self._named.graphs[side][0]) if name} for side in SIDES)
        return mine, rivals

    def _release(self) -> None:
        for piece in self._pieces:
            for graph in itertools.chain(*piece.graphs.values()):
                graph.reset()
        self._tracks, self._pieces, self._named = [], [], None
