"""The clock of an isolated candidate on a card: the parent's events around the queues of two workers, in turn.

A sample goes so. The worker enqueues its graphs behind a wait for its start word. The parent enqueues behind a gate:
what it deals, a read of other memory that empties the L2, an event, the start word, a wait for the worker's end word,
another event, and the copies of what it will judge. Then it opens the gate. No clock of a worker is believed, and no
time of the host lies between the events. The time less what an order costs is the sample's.

The card runs one process at a time. A worker that begins early, since it has seen its inputs, delays the parent's read
of other memory, which is timed: the delay is added to its time. One that writes its last word early has not filled its
results when the parent copies them, or has delayed the parent's second event.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from perfsuite.clock.base import CaptureError, SideFailedError, Sides, TimedCall
from perfsuite.clock.captured import Captured, Track
from perfsuite.clock.deck import ranges
from perfsuite.clock.forwards import Pool
from perfsuite.clock.graph import MOST_CALLS, PLACES, TRIAL_CALLS, GraphClock
from perfsuite.clock.rounds import SIDES, Round, Side
from perfsuite.device import turns
from perfsuite.device.telemetry import Telemetry
from perfsuite.isolate.card_offset import BEYOND, order_costs
from perfsuite.isolate.card_queue import UNIT
from perfsuite.isolate.card_side import BlockedError, CardSide, RemoteGraph
from perfsuite.isolate.card_words import Gate, SettledProbe
from perfsuite.isolate.mirror import Mirror
from perfsuite.isolate.remote import Remote
from perfsuite.isolate.sizes import result_of_one_size
from perfsuite.problems.base import Inputs
from perfsuite.problems.tensors import copy_in_place, map_tensors, tensors_in
from perfsuite.settings import Settings

NOTE = "isolated: timed by events of the parent on the card; the rival runs in a separate process as well"
LEAST_DELAY_SECONDS = 1e-4
"""To hand the card to another process and back takes longer; to write back what was dealt takes less."""
FEWER_CALLS = 3
"""Both sides have memory for both places of results, so samples have at most a third of the calls."""
FIRST_BYTES = 128 << 20
"""Bytes of results of a place before it is known how many calls a sample has."""
SPARE_BYTES, SPARE_SHARE = 192 << 20, 0.25
"""Memory of a place for results beyond the results themselves: workspaces and intermediate results of the calls."""


class IsolatedCardClock(GraphClock):
    """The graph clock, but both sides' graphs are in processes of their own."""

    least_sample = 800e-6  # longer than in-process, since a change of processes costs a sample some microseconds

    def __init__(self, sides: Sides, remote: Remote, settings: Settings, rival: Remote) -> None:
        import torch

        super().__init__(
            replace(sides, watch=None), cache=settings.cache, seed=settings.seed, note=f"{NOTE}; {remote.sandbox}"
        )
        release = torch.cuda.Stream()
        self._workers: dict[Side, CardSide] = {
            "candidate": CardSide(remote, release),
            "rival": CardSide(rival, release),
        }
        self._gate = Gate()
        self._form: Any = None
        """A result of the rival. A captured call must return such a one."""
        self._mirror = Mirror()
        """From the candidate's sets to the rival's, which the candidate does not share."""
        self._probe = SettledProbe()
        self._own = [torch.cuda.Event(enable_timing=True) for _ in range(3)]
        self._least_read: float | None = None
        self._trials: dict[tuple[Side, int], RemoteGraph] = {}
        """Graphs of the calls by which it is found how long a call takes, by side and number of calls."""
        self._opened = 0
        """Calls for whose results there is memory."""
        self._delays: dict[int, float] = {}
        """Seconds by which the card was taken before a sample, by the number of its first event."""

    def side(self, side: Side) -> CardSide:
        """The process of that side."""
        return self._workers[side]

    # -- the protocol ------------------------------------------------------------------------------------------------

    def run(self, side: Side, keys: Sequence[int]) -> float:
        """Seconds between the events around these graphs, when they have run. Raises SideFailedError."""
        window, start, end = self._own
        with self._gate.closed(self._stream):
            self._enqueue_graphs(side, keys, window, start, end, tried=False)
        self._await(side, end)
        return float(start.elapsed_time(end)) / 1e3 + self._delay(window, start)

    def _enqueue_graphs(
        self, side: Side, keys: Sequence[int], window: Any, start: Any, end: Any, *, tried: bool = True
    ) -> None:
        """Enqueue a sample of these graphs, behind a closed gate. tried: samples of that size have been enqueued."""
        try:
            self._workers[side].queue(keys, tried=tried)
        except BlockedError as error:
            raise CaptureError(side, error) from error
        except RuntimeError as error:
            raise SideFailedError(side, error) from error
        window.record()
        self._evict()
        start.record()
        self._workers[side].start(self._stream)
        end.record()

    def _await(self, side: Side, end: Any) -> None:
        try:
            self._workers[side].await_end(end)
        except RuntimeError as error:
            raise SideFailedError(side, error) from error

    def _delay(self, window: Any, start: Any) -> float:
        """Seconds by which the read of other memory took longer than it ever did: another process had the card."""
        read = float(window.elapsed_time(start)) / 1e3
        self._least_read = read if self._least_read is None else min(read, self._least_read)
        delay = read - self._least_read
        return delay if delay > LEAST_DELAY_SECONDS else 0.0

    # -- parts of the graph clock that run in the workers ------------------------------------------------------------

    def _make_sets(self) -> None:
        import torch

        super()._make_sets()
        with torch.no_grad():
            self._form = map_tensors(result_of_one_size(self._sets, self.sides.rival), copy_in_place)
        sets = self._handed("candidate", self._sets)
        self._mirror = Mirror(sets, self._handed("rival", self._sets))
        self._deck.adopt(sets)
        self._sets = sets

    def _handed(self, side: Side, sets: list[Inputs]) -> list[Inputs]:
        try:
            return self._workers[side].hand(sets)
        except RuntimeError as error:
            raise SideFailedError(side, error) from error

    def _copy_to_rival(self, parts: list[tuple[int, int]]) -> None:
        self._mirror.copy(parts)

    def _prepare(self) -> None:
        if not self._pools:
            self._pools = [Pool(self._device) for _ in PLACES]  # their numbers stand for the places in the workers
        self._open(self.launches or self._first_calls())
        self._load()
        turns.alone(lambda: self._workers["candidate"].remote.stop())
        self._measure_costs()
        super()._prepare()
        self._overhead += self._beyond_an_order()
        self.timer_seconds = self._overhead

    def _load(self) -> None:
        """Let both sides load their kernels and capture their trials, while others still use the card."""
        for side, pool in zip(SIDES, self._pools, strict=True):
            for sets in self._tried()[:1] if self.launches else self._tried():
                graph = self._capture(side, sets, pool)[0]
                if self.launches:
                    graph.reset()
                else:
                    self._trials[side, len(sets)] = graph

    def _calls_that_fit(self, result_bytes: int) -> int:
        return max(1, super()._calls_that_fit(result_bytes) // FEWER_CALLS)

    def _choose_launches(self) -> None:
        super()._choose_launches()
        while self._trials:  # of long calls one was enough
            self._trials.popitem()[1].reset()
        if self.launches > self._opened:
            turns.beside()
            self._open(self.launches)

    def _first_calls(self) -> int:
        """Calls for whose results there is memory before the calls of a sample are known: often it is enough."""
        most = FIRST_BYTES // max(1, self._result_bytes)
        return max(TRIAL_CALLS, min(MOST_CALLS, self._most_calls, most))

    @property
    def _result_bytes(self) -> int:
        return sum(-(-one.numel() * one.element_size() // 512) * 512 for one in tensors_in(self._form))

    def _open(self, calls: int) -> None:
        """Give both sides memory for the results of so many calls, in each of the two places."""
        self._opened = calls
        size = len(PLACES) * (int((1.0 + SPARE_SHARE) * calls * self._result_bytes) + SPARE_BYTES) + UNIT
        for side in SIDES:
            try:
                self._workers[side].open(size, self._device, len(PLACES))
            except RuntimeError as error:
                raise CaptureError(side, error) from error

    def _measure_costs(self) -> None:
        """Measure what a sample costs beside its calls, in the rival's process: a candidate could make it cost more."""
        known = self._workers["rival"].remote.order_costs
        self._event_cost, self._gap = order_costs(lambda keys: self.run("rival", keys), known)

    def _beyond_an_order(self) -> float:
        """Seconds that a sample costs beyond an order, which is what was measured with graphs of tiny kernels."""
        first, second = (
            [graph.key for graph in track.captured("rival").graphs] for track in (self._tracks[0], self._tracks[-1])
        )

        def run(keys: list[int]) -> float:
            self._restore_all()
            return self.run("rival", keys)

        return BEYOND.seconds(run, (first, second), (self._event_cost, self._gap))

    def _capture_all(self, planned: list[tuple[Track, Side, int]]) -> None:
        """Both processes capture at the same time, each in the order of its samples, and run what they have once."""
        capture = super()._capture_all

        def captured(side: Side) -> float:
            capture([one for one in planned if one[1] == side])
            return self._run_once(side)

        turns.beside()
        with ThreadPoolExecutor(len(SIDES), "perfsuite capture") as both:
            for work in [both.submit(captured, side) for side in SIDES]:
                self._seconds += work.result()
        turns.alone(lambda: self._workers["candidate"].remote.stop())

    def _run_once(self, side: Side) -> float:
        """Run all graphs of a side, since a first run takes longer; the seconds of that."""
        begin = time.perf_counter()
        try:
            self._workers[side].touch([graph.key for graph in self._graphs_of(side)])
        except RuntimeError as error:
            raise SideFailedError(side, error) from error
        return time.perf_counter() - begin

    def _capture(self, side: Side, indices: list[int], pool: Pool, **_: Any) -> tuple[Any, list[Any]]:
        if (there := self._trials.pop((side, len(indices)), None)) is not None:
            return there, []
        return self._captured(side, [indices], self._pools.index(pool), nodes=False).graphs[0], []

    def _captured(self, side: Side, pieces: list[list[int]], place: int, *, nodes: bool) -> Captured:
        try:
            keys, form, memory = self._workers[side].capture(place, pieces, self._form)
        except RuntimeError as error:
            raise CaptureError(side, error) from error
        return Captured.of([RemoteGraph(self, side, key) for key in keys], form, memory)

    def _replayed(self, graph: Any, times: int) -> float:
        return self.run(graph.side, [graph.key] * times)

    def _touch(self) -> None:
        self._copy_to_rival([(0, len(self._sets))])  # the processes have run their graphs when they were captured

    def _enqueue(self, side: Side, sample: int, place: int) -> None:
        self.run(side, self._keys(side, sample, place))

    def _keys(self, side: Side, sample: int, place: int) -> list[int]:
        """The graphs of a sample."""
        captured = self._drawn(side, sample, place)
        if side == "candidate":
            captured, self._next = self._next or captured, None
            self._mine = captured
        return [graph.key for graph in captured.graphs]

    def _alone(self) -> None:
        """Nothing: before each sample the card changes from this process to a worker."""

    def rounds(self, count: int) -> list[Round]:
        turns.alone(lambda: self._workers["candidate"].remote.stop())
        return super().rounds(count)

    def timed_calls(self, count: int) -> list[TimedCall]:
        turns.beside()  # what comes now is not timed
        return super().timed_calls(count)

    # -- rounds ------------------------------------------------------------------------------------------------------

    def _half(self, number: int, sides: list[Side], place: int, *, keeper: bool, hard: bool) -> None:
        samples = {side: self._samples + turn for turn, side in enumerate(sides)}
        self._samples += len(sides)
        used = [part for sample in samples.values() for part in self._range(sample)]
        events, watched = self._events_of(number), None
        if hard:  # to make hard inputs may wait for the card; the times of these halves do not count
            self._deal(used)
            watched = self._watch_calls(samples["candidate"], place, hard=True)
        for turn, side in enumerate(sides):
            start, end = events[2 * turn : 2 * turn + 2]
            with self._gate.closed(self._stream):
                if not turn and not hard:
                    self._deal(used)
                    watched = self._watch_calls(samples["candidate"], place, hard=False) if keeper else None
                self._enqueue_graphs(side, self._keys(side, samples[side], place), self._own[0], start, end)
                if side == "candidate" and watched is not None:
                    self._keep(watched)
            self._await(side, end)
            self._delays[id(start)] = self._delay(self._own[0], start)

    def _deal(self, used: list[tuple[int, int]]) -> None:
        """Deal values to the sets that these samples use; the rival's copies get the same."""
        count = len(self._sets)
        parts = used if self.samples_a_side > 1 else ranges(0, count, count)
        self._deck.deal(parts)
        self._copy_to_rival(parts)

    def _read(self, sides: list[Side], events: list[Any]) -> dict[Side, float]:
        found = super()._read(sides, events)
        for turn, side in enumerate(sides):
            found[side] += self._delays.pop(id(events[2 * turn]), 0.0)
        return found

    def host_seconds(self) -> tuple[float | None, float | None]:
        """None for both: the host's time of a call is that of an order."""
        return None, None

    def telemetry(self) -> Telemetry:
        found = super().telemetry()
        others = found.other_processes
        mine = sum(one.remote.running for one in self._workers.values())
        mine += turns.contexts_beside()
        return found if others is None else replace(found, other_processes=max(0, others - mine))

    def kernels(self) -> tuple[set[str], set[str]] | None:
        """None: a worker's word about its kernels is not believed."""
        return None

    def _graphs_of(self, side: Side) -> list[RemoteGraph]:
        # A list at once, since the other side's thread may add its own meanwhile.
        mine = (found for track in self._tracks for (whose, _), found in list(track.captures.items()) if whose == side)
        return [graph for found in mine for captured in found for graph in captured.graphs]

    def _release(self) -> None:
        for side in SIDES:
            try:
                self._workers[side].drop([graph.key for graph in self._graphs_of(side)])
            except RuntimeError:  # the process has ended, and its graphs with it
                continue
        self._tracks, self._named, self._mine, self._next = [], None, None, None
        self._trials.clear()  # the processes free these with the memory for results

    def close(self) -> None:
        if self._setups:  # no other clock will use the processes: they free their graphs when they end or forget
            self._tracks = []
        super().close()
        self._form, self._mirror = None, Mirror()
        for side in SIDES:
            self._workers[side].close()
        self._gate.close()
        turns.beside()
