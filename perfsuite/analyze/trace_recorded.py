"""Makes a trace with torch.profiler: a schedule of calls in ranges, kept as a file, and read into plain values."""

from __future__ import annotations

import collections
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from perfsuite.analyze import timeline
from perfsuite.analyze.timeline import ProfilerError
from perfsuite.analyze.trace import RANGE, SYNCHRONISING, Kernel, Operator, Trace
from perfsuite.analyze.workload import Workload, started

WAIT_CALLS, WARM_UP_CALLS = 1, 2
_RUNTIME = ("cuda", "cu", "Lazy Function Loading", "Activity Buffer", "Command Buffer", "Unrecognized")
"""Beginnings of names that the profiler lists beside operators: calls of the CUDA runtime, and its own."""


def record(
    workload: Workload, calls: int, *, file: Path | None = None, folder: Path | None = None, stacks: bool = False
) -> Trace:
    """Trace `calls` calls after a warm-up.

    file: keeps the trace for Perfetto or chrome://tracing. folder: keeps it for TensorBoard instead. stacks: adds the
    lines of Python that launched each operator. Raises WorkloadError, ProfilerError, OSError.
    """
    import torch

    call = started(workload)
    kinds = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    schedule = torch.profiler.schedule(wait=WAIT_CALLS, warmup=WARM_UP_CALLS, active=calls, repeat=1)
    handler = torch.profiler.tensorboard_trace_handler(str(folder)) if folder else None
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    options: dict[str, Any] = {"record_shapes": True, "profile_memory": True, "with_stack": stacks, "acc_events": True}
    with torch.profiler.profile(activities=kinds, schedule=schedule, on_trace_ready=handler, **options) as profile:
        for turn in range(WAIT_CALLS + WARM_UP_CALLS + calls):
            with torch.profiler.record_function(RANGE):
                call()
            # Without the wait, kernels of the warm-up run into the first range, and those of the last call are cut off.
            if turn in (WAIT_CALLS + WARM_UP_CALLS - 1, WAIT_CALLS + WARM_UP_CALLS + calls - 1):
                torch.cuda.synchronize()
            profile.step()
    if file is not None:
        profile.export_chrome_trace(str(file))
    return read(profile.events(), profile.key_averages(), peak_bytes=float(torch.cuda.max_memory_allocated()))


def read(events: Iterable[Any], averages: Iterable[Any], *, peak_bytes: float | None = None) -> Trace:
    """The profiler's events and averages as a Trace; ProfilerError if they hold nothing of the device."""
    import torch

    every = list(events)
    on_host = [event for event in every if event.device_type == torch.autograd.DeviceType.CPU]
    spans = [(event.time_range.start, event.time_range.end) for event in on_host if event.name == RANGE]
    device = [event for event in timeline.device_events(every) if not event.name.startswith(("perfsuite", "Profiler"))]
    if not spans or not device:
        raise ProfilerError("torch's profiler saw nothing of the calls on the device (is CUPTI barred?)")
    calls = len(spans)
    waits = [
        event
        for event in on_host
        if event.name in SYNCHRONISING
        and any(start <= event.time_range.start and event.time_range.end <= end for start, end in spans)
    ]
    end = max(max(span[1] for span in spans) / 1e6, max(event.end for event in device))
    kernels: dict[str, list[float]] = collections.defaultdict(list)
    for event in device:
        if event.kind in ("kernel", "communication"):
            kernels[event.name].append(event.end - event.start)
    launched = [Kernel(name, len(times), sum(times)) for name, times in kernels.items()]
    occupied = timeline.occupation(device, calls)
    return Trace(
        calls=calls,
        seconds=(end - min(span[0] for span in spans) / 1e6) / calls,
        host_seconds=sum(stop - start for start, stop in spans) / 1e6 / calls,
        device_seconds=occupied.busy,
        waiting_seconds=sum(event.time_range.elapsed_us() for event in waits) / 1e6 / calls,
        waits=len(waits) / calls,
        copied_seconds=timeline.length(event.span for event in device if event.kind == "copy") / calls,
        kernels_a_call=occupied.kernels,
        operators=tuple(_operators(averages)),
        kernels=tuple(sorted(launched, key=lambda one: -one.seconds)),
        peak_bytes=peak_bytes,
    )


def _operators(averages: Iterable[Any]) -> Iterable[Operator]:
    import torch

    for row in averages:
        if row.device_type != torch.autograd.DeviceType.CPU or (row.key.startswith(_RUNTIME) and "::" not in row.key):
            continue
        if row.key == RANGE or row.key.startswith("ProfilerStep"):
            continue
        device, host = row.self_device_time_total / 1e6, row.self_cpu_time_total / 1e6
        yield Operator(row.key, int(row.count), device, host, float(row.self_device_memory_usage))
