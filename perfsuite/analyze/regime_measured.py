"""The evidence for a regime, measured: times of a workload and its variations in turn, and a look by the profiler."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

from perfsuite.analyze import timeline
from perfsuite.analyze.regime import Evidence, Variation
from perfsuite.analyze.workload import Call, Workload, change, started

ROUNDS = 5
LOOP_SECONDS = 0.03
MOST_CALLS = 2000
PROFILED_CALLS = 10
Agree = Callable[[int], int]
"""A number of calls -> the one that all ranks take: a collective must be called as often on each of them."""


def alone(calls: int) -> int:
    """One process agrees with itself."""
    return calls


def measure(workload: Workload, *, agree: Agree = alone, tell: Callable[[str], None] = lambda _: None) -> Evidence:
    """Run a workload and its variations on the current device."""
    every = (workload, *workload.variations)
    calls, counts = [], []
    for number, one in enumerate(every, start=1):
        tell(f"[{number}/{len(every)}] {one.name}: arithmetic x{one.arithmetic:.3g}, bytes x{one.bytes:.3g}")
        call = started(one)
        calls.append(call)
        counts.append(agree(_calls_in(LOOP_SECONDS, loop(call, 2)[0])))
        loop(call, counts[-1])
    # In turn, so that a clock that drifts meets all of them.
    rounds = [[loop(call, count) for call, count in zip(calls, counts, strict=True)] for _ in range(ROUNDS)]
    # The best of them: what else runs on the machine only adds time.
    times = [min(found[place][0] for found in rounds) for place in range(len(every))]
    host = min(found[0][1] for found in rounds)
    profiled = agree(min(PROFILED_CALLS, counts[0]))
    occupied = timeline.occupation(timeline.record(calls[0], profiled), profiled)
    return Evidence(
        seconds=times[0],
        host_seconds=host,
        busy_seconds=occupied.busy,
        communication_seconds=occupied.communication,
        kernels=occupied.kernels,
        variations=_variations(workload.variations, times),
    )


def _variations(workloads: Sequence[Workload], times: Sequence[float]) -> tuple[Variation, ...]:
    return tuple(
        Variation(*change(one), math.log(seconds / times[0])) for one, seconds in zip(workloads, times[1:], strict=True)
    )


def loop(call: Call, calls: int) -> tuple[float, float]:
    """Seconds a call of a loop that waits at its end, and until the last call had returned."""
    _wait()
    begun = time.perf_counter()
    for _ in range(calls):
        call()
    returned = time.perf_counter() - begun
    _wait()
    return (time.perf_counter() - begun) / calls, returned / calls


def _calls_in(seconds: float, a_call: float) -> int:
    return max(2, min(MOST_CALLS, math.ceil(seconds / max(a_call, 1e-7))))


def _wait() -> None:
    import torch

    torch.cuda.synchronize()
