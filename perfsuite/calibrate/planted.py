"""Plants device work of known length in one side of a comparison."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from perfsuite.clock.base import Sides
from perfsuite.clock.cuda import spin
from perfsuite.clock.in_turns import GraphClockInTurns
from perfsuite.clock.other_context import change_contexts
from perfsuite.clock.rounds import Side

SPIN_CYCLES = (2_000, 40_000)
SPIN_REPLAYS = 80


@dataclass(frozen=True)
class SpinCost:
    """The time that one spin kernel adds to a graph: seconds = launch + cycles * a_cycle."""

    launch: float
    a_cycle: float

    def cycles_for(self, seconds: float) -> int:
        """The cycles that add `seconds`, at least 1."""
        return max(1, round((seconds - self.launch) / self.a_cycle))


def spin_cost(calls: Callable[[], object]) -> SpinCost:
    """The cost behind these calls, by graphs of the calls without, with a short and with a long spin kernel.

    The kernel before it decides what a launch costs, so that it is measured behind the calls of each case.
    """
    import torch

    stream = torch.cuda.Stream()
    before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    graphs: dict[int, Any] = {}
    times: dict[int, list[float]] = {cycles: [] for cycles in (0, *SPIN_CYCLES)}
    with torch.cuda.stream(stream):
        calls()
        torch.cuda._sleep(1)
        stream.synchronize()
        for cycles in times:
            graphs[cycles] = torch.cuda.CUDAGraph()
            graphs[cycles].capture_begin(capture_error_mode="thread_local")
            calls()
            if cycles:
                torch.cuda._sleep(cycles)
            graphs[cycles].capture_end()
        stream.synchronize()
        change_contexts(torch.cuda.current_device())  # as the clock does before its rounds
        for _ in range(SPIN_REPLAYS):
            for cycles, graph in graphs.items():
                spin(50e-6)
                before.record()
                graph.replay()
                after.record()
                after.synchronize()
                times[cycles].append(before.elapsed_time(after) / 1e3)
    plain, short, long = (statistics.median(times[cycles]) for cycles in (0, *SPIN_CYCLES))
    a_cycle = (long - short) / (SPIN_CYCLES[1] - SPIN_CYCLES[0])
    return SpinCost(launch=max(0.0, short - plain - SPIN_CYCLES[0] * a_cycle), a_cycle=a_cycle)


class PlantedClock(GraphClockInTurns):
    """The graph clock, with a spin kernel at the end of each of the candidate's samples.

    Several processes may calibrate one card: they set up beside one another, and time in turns.
    The kernel lasts `slowdown` of the sample's time. The caller has measured `call_seconds`, the time of a call, and
    `cost`, that of a spin kernel behind such calls; None plants nothing.
    """

    def __init__(
        self,
        sides: Sides,
        *,
        seed: int,
        slowdown: float = 0.0,
        call_seconds: float = 0.0,
        cost: SpinCost | None = None,
    ) -> None:
        super().__init__(sides, seed=seed)
        self._slowdown = slowdown
        self._known_seconds = call_seconds
        self._cost = cost

    def _plant(self, side: Side) -> None:
        if self._cost is not None and side == "candidate":
            import torch

            torch.cuda._sleep(self._cost.cycles_for(self._slowdown * self.launches * self._known_seconds))

    def replays(self) -> tuple[Callable[[], None], Callable[[], None]]:
        """A sample of the candidate, and of the rival, as callables for other timers."""
        return lambda: self._enqueue("candidate", 0, 0), lambda: self._enqueue("rival", 0, 0)
