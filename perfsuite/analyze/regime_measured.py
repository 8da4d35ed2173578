"""Measures the evidence for a regime: a workload and its variations timed in turn, and one run under the profiler."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from perfsuite.analyze import timeline
from perfsuite.analyze.regime import Evidence, Variation
from perfsuite.analyze.workload import Call, Workload, change, started

ROUNDS = 5
LOOP_SECONDS = 0.03
MOST_CALLS = 2000
PROFILED_CALLS = 10


def measure(
    workload: Workload, *, agree: Callable[[int], int] = int, tell: Callable[[str], None] = lambda _: None
) -> Evidence:
    """Run a workload and its variations on the current device.

    agree: turns this rank's number of calls into that of all ranks; each must call a collective equally often.
    """
    every = (workload, *workload.variations)
    calls, counts = [], []
    for number, one in enumerate(every, start=1):
        tell(f"[{number}/{len(every)}] {one.name}: arithmetic x{one.arithmetic:.3g}, bytes x{one.bytes:.3g}")
        call = started(one)
        calls.append(call)
        wanted = math.ceil(LOOP_SECONDS / max(loop(call, 2)[0], 1e-7))
        counts.append(agree(max(2, min(MOST_CALLS, wanted))))
        loop(call, counts[-1])
    # In turn, so that a drift of the clock affects all of them.
    rounds = [[loop(call, count) for call, count in zip(calls, counts, strict=True)] for _ in range(ROUNDS)]
    # The shortest, because other work on the machine only adds time.
    times = [min(found[place][0] for found in rounds) for place in range(len(every))]
    profiled = agree(min(PROFILED_CALLS, counts[0]))
    occupied = timeline.occupation(timeline.record(calls[0], profiled), profiled)
    return Evidence(
        seconds=times[0],
        host_seconds=min(found[0][1] for found in rounds),
        busy_seconds=occupied.busy,
        communication_seconds=occupied.communication,
        kernels=occupied.kernels,
        variations=tuple(
            Variation(*change(one), math.log(seconds / times[0]))
            for one, seconds in zip(workload.variations, times[1:], strict=True)
        ),
    )


def loop(call: Call, calls: int) -> tuple[float, float]:
    """Seconds a call, in a loop that waits for the device at its end; and seconds a call until the host returned."""
    import torch

    torch.cuda.synchronize()
    begun = time.perf_counter()
    for _ in range(calls):
        call()
    returned = time.perf_counter() - begun
    torch.cuda.synchronize()
    return (time.perf_counter() - begun) / calls, returned / calls
