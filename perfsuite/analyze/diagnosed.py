"""Runs a workload or a script twice, once for times and once watched, and returns the observations."""

from __future__ import annotations

import contextlib
import runpy
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from perfsuite.analyze import timeline, watching
from perfsuite.analyze.diagnosis import Observed, Place, Product
from perfsuite.analyze.regime_measured import LOOP_SECONDS, loop
from perfsuite.analyze.workload import Workload, started
from perfsuite.outcome import UserError

WATCHED_CALLS = 3
MOST_TIMED_CALLS = 200


class ScriptError(UserError):
    """The script failed, or did nothing on the device; the text names the place."""


def of_workload(workload: Workload) -> Observed:
    """Observe calls of a workload. Raises WorkloadError, ProfilerError."""
    call = started(workload)
    first, _ = loop(call, WATCHED_CALLS)
    seconds, _ = loop(call, max(WATCHED_CALLS, min(MOST_TIMED_CALLS, int(LOOP_SECONDS / first))))
    memory = _memory(lambda: loop(call, WATCHED_CALLS))
    events = timeline.record(call, WATCHED_CALLS)
    with watching.waits() as waits, watching.products() as products:
        for _ in range(WATCHED_CALLS):
            call()
    return _observed(events, waits, products, memory, seconds=seconds * WATCHED_CALLS, calls=WATCHED_CALLS)


def of_script(path: Path, arguments: Sequence[str]) -> Observed:
    """Observe a script, which runs twice from begin to end. Raises ScriptError."""
    import torch

    found: list[timeline.Event] = []

    def timed() -> None:
        kinds = [torch.profiler.ProfilerActivity.CUDA]
        with torch.profiler.profile(activities=kinds, acc_events=True) as profile:
            run_script(path, arguments)
            torch.cuda.synchronize()
        found.extend(timeline.device_events(profile.events()))

    with watching.loading() as loading:
        memory = _memory(timed)
    if not found:
        raise ScriptError(f"{path} ran nothing on the device that torch's profiler could see")
    with watching.waits() as waits, watching.products() as products:
        run_script(path, arguments)
    memory |= {"loading_seconds": loading.seconds, "batches": loading.batches}
    memory |= {"workers": loading.workers or 0, "pinned": loading.pinned}
    seconds = max(event.end for event in found) - min(event.start for event in found)
    return _observed(found, waits, products, memory, seconds=seconds)


def _observed(
    events: Sequence[timeline.Event],
    waits: Mapping[Place, int],
    products: Sequence[Product],
    more: Mapping[str, Any],
    *,
    seconds: float,
    calls: int = 1,
) -> Observed:
    import torch

    whole = timeline.occupation(events, 1)
    tf32 = torch.get_float32_matmul_precision() != "highest"
    return Observed(seconds, whole.busy, int(whole.kernels), calls, dict(waits), tuple(products), tf32, **more)


def run_script(path: Path, arguments: Sequence[str]) -> None:
    """Run a file as `python FILE ARGUMENTS` would, in this process; its output goes to stderr."""
    with _as_main(path, arguments), contextlib.redirect_stdout(sys.stderr):
        try:
            runpy.run_path(str(path), run_name="__main__")
        except SystemExit as stop:
            if stop.code not in (None, 0):
                raise ScriptError(f"{path} ends with exit code {stop.code}") from None
        except Exception as error:  # of the user's script
            own = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
            line = f" line {own[-1].lineno}" if own else ""
            why = (str(error).splitlines() or [""])[0]
            raise ScriptError(f"{path}{line} fails with {type(error).__name__}: {why}") from error


@contextlib.contextmanager
def _as_main(path: Path, arguments: Sequence[str]) -> Iterator[None]:
    argv, first = sys.argv, sys.path[0]
    sys.argv, sys.path[0] = [str(path), *arguments], str(path.resolve().parent)
    try:
        yield
    finally:
        sys.argv, sys.path[0] = argv, first


def _memory(run: Callable[[], Any]) -> dict[str, Any]:
    """Peaks, retries and failures of torch's allocator while `run` runs, as fields of Observed."""
    import torch

    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_stats()
    run()
    after = torch.cuda.memory_stats()
    return {
        "allocated_peak": float(after.get("allocated_bytes.all.peak", 0)),
        "reserved_peak": float(after.get("reserved_bytes.all.peak", 0)),
        "retries": int(after.get("num_alloc_retries", 0) - before.get("num_alloc_retries", 0)),
        "out_of_memory": int(after.get("num_ooms", 0) - before.get("num_ooms", 0)),
    }
