"""The default clock: each side's calls captured into CUDA graphs, which are replayed in turn.

A sample is one pass over the whole rotation, if that is short enough. Both sides then use all inputs equally, and no
input is read again before all others. A sample consists of several graphs, with several captures of each: small kernels
differ by up to a percent between two captures of the same calls. Captures of both sides come in mixed order.

All results of half a round stay in memory until it has ended. There are two places for the results of a sample, each a
memory pool. Each side is captured for both places, and in the halves of a round the sides exchange them. Both sides
thus write to the same addresses, though never in the same half.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import statistics
from functools import partial
from typing import Any

from perfsuite.clock.base import ClockKind
from perfsuite.clock.captured import Captured, Track, spans_of
from perfsuite.clock.cuda import CudaClock, spin
from perfsuite.clock.forwards import Forwards, Pool, capture, capturing
from perfsuite.clock.garbage import collect_young
from perfsuite.clock.rotation import share_memory
from perfsuite.clock.rounds import SIDES, Side
from perfsuite.guards.poison import poison
from perfsuite.problems.differentiated import needs_preparing
from perfsuite.problems.tensors import map_tensors

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
PLACES = (0, 1)
"""Memory for the results of a sample."""


class GraphClock(CudaClock):
    """Times replays of CUDA graphs: no launch overhead between the calls, the same work for both sides."""

    kind: ClockKind = "graph"
    least_sample = SAMPLE_SECONDS

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._pools: list[Pool] = []
        self._forwards = Forwards()
        self._gap = 0.0
        self._tracks: list[Track] = []
        """Samples replay the tracks in turn, and the pieces of a track one after another."""
        self._mine: Captured | None = None
        """The candidate's capture that was replayed last, or that will be next."""
        self._next: Captured | None = None
        self._told_of_reuse = False
        self._seen: tuple[set[str], set[str]] | None = None
        """The names of the kernels, once the graphs are gone."""
        self._named: Track | None = None
        """A track drawn in secret, whose first graphs can list their kernels."""

    def _prepare(self) -> None:
        if not self._pools:
            self._pools = [Pool(self._device) for _ in PLACES]
            self._measure_costs()
        for side in SIDES:
            if needs_preparing(self._function(side)):
                self._forwards.capture(side, self._sets, partial(self._ready, side), self._device)
        if not self.launches:
            self._choose_launches()
        self._tracks = self._plan()
        self.samples_a_side = len(self._tracks)
        each = 1
        if self._call_seconds < SHORT_CALL_SECONDS:
            pieces = len(self._tracks[0].pieces) * len(self._tracks)
            each = math.ceil(FEWEST_GRAPHS / (pieces * len(PLACES)))
        self._named = self._secret.choice(self._tracks)
        # Addresses do not matter to long calls: one capture of each side will do.
        places = {
            side: PLACES if self._call_seconds < LONG_CALL_SECONDS else (turn,) for turn, side in enumerate(SIDES)
        }
        planned = [(track, side, place) for track in self._tracks for side in SIDES for place in places[side]] * each
        self._order.shuffle(planned)
        self._capture_all(planned)
        self._overhead = self._event_cost + (len(self._tracks[0].pieces) - 1) * self._gap
        self.timer_seconds = self._overhead

    def _capture_all(self, planned: list[tuple[Track, Side, int]]) -> None:
        """Capture these samples, in this order."""
        for track, side, place in planned:
            others = track.captures.setdefault((side, place), [])
            others.append(self._captured(side, track.pieces, place, nodes=track is self._named and not others))

    def _forward(self, side: Side, sample: int) -> None:
        self._forwards.replay(side, (self._inputs_of(sample, call) for call in range(self.launches)))

    def _plan(self) -> list[Track]:
        """The tracks, without graphs: one pass over the rotation, or several parts of it."""
        count = len(self._sets)
        tracks = 1 if self.launches >= count else math.ceil(count / self.launches)
        planned = []
        for track in range(tracks):
            calls = [(track * self.launches + call) % count for call in range(self.launches)]
            pieces = max(1, min(len(calls), round(len(calls) * self._call_seconds / PIECE_SECONDS)))
            ends = [round(len(calls) * part / pieces) for part in range(pieces + 1)]
            planned.append(Track([calls[start:end] for start, end in itertools.pairwise(ends)]))
        return planned

    def _choose_launches(self) -> None:
        """Set `launches`, the number of calls in a sample."""
        count = len(self._sets)
        once, several = self._tried()
        found = []
        for side in SIDES:
            seconds = self._trial(side, once)
            found.append(seconds if seconds >= LONG_CALL_SECONDS else self._trial(side, several))
        self._note_seconds(found)
        slower = max(found)
        rotation = count * self._call_seconds
        if rotation <= LONGEST_ROTATION_SECONDS and count * slower <= LONGEST_SAMPLE_SECONDS and count <= MOST_CALLS:
            self.launches = min(count * math.ceil(self.least_sample / rotation), MOST_CALLS)
        else:
            self.launches = math.ceil(self.least_sample / self._call_seconds)
        most = min(self.launches, int(LONGEST_SAMPLE_SECONDS / slower), self._most_calls)
        self.launches = self._most_in_a_sample(max(1, most))

    def _tried(self) -> tuple[list[int], list[int]]:
        """The sets of the calls by which it is found how long a call takes: of one, and of several."""
        count = len(self._sets)
        return [0], [call % count for call in range(min(TRIAL_CALLS, max(2, count)))]

    def _trial(self, side: Side, indices: list[int]) -> float:
        """Seconds a call, from a few replays of a small graph."""
        # In the side's own pool: a pool keeps the memory of what a call needs beside its results.
        trial, _ = self._capture(side, indices, self._pools[SIDES.index(side)], last=False)
        trial.replay()
        found: list[float] = []
        while sum(found) < TRIAL_SECONDS and len(found) < TRIAL_REPLAYS:
            self._restore_all()
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
        with capturing(tiny, self._pools[0].handle, self._device):
            inner[0].record()
            number.add_(1.0)
            inner[1].record()
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

    def _captured(self, side: Side, pieces: list[list[int]], place: int, *, nodes: bool) -> Captured:
        """Graphs of the calls of a sample, with results in that place. nodes: the first can list its nodes later."""
        import torch

        graphs, outputs = [], []
        for number, indices in enumerate(pieces):
            last = number == len(pieces) - 1
            graph, found = self._capture(side, indices, self._pools[place], last=last, nodes=nodes and not number)
            graphs.append(graph)
            # They are held until the last piece is captured, so that each result has memory of its own.
            outputs += found
        form = map_tensors(outputs[0], lambda _: torch.empty(0))
        memory = [spans_of(output) for output in outputs]
        del outputs, found
        collect_young()
        return Captured.of(graphs, form, memory)

    def _capture(
        self, side: Side, indices: list[int], pool: Pool, *, last: bool, nodes: bool = False
    ) -> tuple[Any, list[Any]]:
        """A graph of calls on the sets `indices`, and their results. nodes: keep the graph's nodes to list them."""
        import torch

        graph = torch.cuda.CUDAGraph(keep_graph=nodes)
        outputs = []

        def calls() -> None:
            for index in indices:
                outputs.append(self._call(side, self._sets[index]))
            if last:
                self._plant(side)

        capture(graph, calls, side, pool=pool.handle, device=self._device)
        self._look(side)
        return graph, outputs

    def _plant(self, side: Side) -> None:
        """Do nothing; a calibration plants work of known length at the end of a sample."""

    def _start(self, sample: int) -> int:
        return (sample % len(self._tracks)) * self.launches

    def _enqueue(self, side: Side, sample: int, place: int) -> None:
        captured = self._drawn(side, sample, place)
        if side == "candidate":
            captured, self._next = self._next or captured, None
            self._mine = captured
        for graph in captured.graphs:
            graph.replay()

    def _drawn(self, side: Side, sample: int, place: int) -> Captured:
        """A capture for that sample, in that place where the side has one."""
        captures = self._tracks[sample % len(self._tracks)].captures
        mine = place if side == "candidate" else 1 - place
        return self._order.choice(captures.get((side, mine)) or captures[side, SIDES.index(side)])

    def _whole_results(self, sample: int, place: int) -> list[int]:
        self._next = self._drawn("candidate", sample, place)
        if len(self._next.whole) < self.launches and not self._told_of_reuse:
            self._told_of_reuse = True
            self.warnings.append("the candidate returns the same memory again: only its last results are judged")
        return self._next.whole

    def _result(self, call: int) -> Any:
        assert self._mine is not None
        return self._mine.result(call)

    def _poison(self, sample: int, calls: list[int], place: int) -> None:
        assert self._next is not None
        for call in calls:
            output = self._next.result(call)
            if not share_memory(output, self._inputs_of(sample, call)):
                poison(output)

    def _touch(self) -> None:
        before, after = self._events[:2]
        before.record()
        for track in self._tracks:
            for captured in track.every():
                self._restore_all()
                for graph in captured.graphs:
                    graph.replay()
        after.record()
        after.synchronize()
        self._seconds += before.elapsed_time(after) / 1e3

    def _block(self, samples: int) -> None:
        spin(GRAPH_LAUNCH_SECONDS)

    def kernels(self) -> tuple[set[str], set[str]] | None:
        from perfsuite.guards.kernel_names import kernels_in

        if self._named is None:
            return self._seen
        mine, rivals = ({name for name in kernels_in(self._first_graph(side)) if name} for side in SIDES)
        return mine, rivals

    def _make_room(self) -> None:
        with contextlib.suppress(RuntimeError, OSError, AttributeError):  # a driver that does not name kernels
            self._seen = self.kernels()
        self._release()
        self._pools, self._forwards = [], Forwards()
        super()._make_room()

    def _first_graph(self, side: Side) -> Any:
        assert self._named is not None
        return self._named.captured(side).graphs[0]

    def _release(self) -> None:
        for track in self._tracks:
            for captured in track.every():
                for graph in captured.graphs:
                    graph.reset()
        self._forwards.reset()
        self._tracks, self._named, self._mine, self._next = [], None, None, None
