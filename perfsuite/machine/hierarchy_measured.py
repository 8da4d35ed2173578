"""Measures the memory hierarchy of the current card with perfsuite's device code."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from perfsuite.machine import hierarchy
from perfsuite.machine.ceilings import COPY_BYTES, best_seconds, copy_bytes_a_second
from perfsuite.machine.device_code import compiled
from perfsuite.machine.hierarchy import LINE_BYTES, Level
from perfsuite.machine.hierarchy_source import SOURCE
from perfsuite.verdict.floor import ceilings_of

CHASES = 5
SHARED_STEPS, L2_STEPS, HBM_STEPS = 65536, 16384, 4096
SHARED_PASSES = 16384
L2_PASSES = 64
THREADS = 1024
VECTOR_BYTES = 16


@dataclass(frozen=True)
class Measured:
    """The levels, nearest first, and the bytes that two large copies read and write per second."""

    levels: tuple[Level, ...]
    copy_bytes_a_second: float
    """Of perfsuite's kernel, on COPY_BYTES."""
    library_copy_bytes_a_second: float
    """Of torch's copy."""


def measure(tell: Callable[[str], None] = lambda _: None) -> Measured:
    """Measure all levels. Raises DeviceCodeError if the kernels cannot be compiled."""
    import torch

    device = torch.cuda.current_device()
    facts = torch.cuda.get_device_properties(device)
    tell("[1/3] shared memory")
    shared = _shared(facts.multi_processor_count, float(getattr(facts, "clock_rate", 0)) * 1e3)
    tell("[2/3] L2")
    l2 = _l2(facts.multi_processor_count, facts.L2_cache_size)
    tell("[3/3] device memory")
    peak = ceilings_of(device).bytes_a_second
    hbm, copy = _device_memory(facts.multi_processor_count, facts.L2_cache_size, peak)
    return Measured((shared, l2, hbm), copy, copy_bytes_a_second(device))


def _shared(multiprocessors: int, clock: float) -> Level:
    import torch

    blocks = 2 * multiprocessors
    out = torch.empty(blocks * THREADS, dtype=torch.int32, device="cuda")
    read = compiled(SOURCE, "read_shared")
    seconds = best_seconds(lambda: read((blocks, 1, 1), (THREADS, 1, 1), (SHARED_PASSES, out)))
    moved = float(blocks * THREADS * VECTOR_BYTES) * SHARED_PASSES
    chase = compiled(SOURCE, "chase_shared")
    cycles, latency = _chase(lambda found: chase((1, 1, 1), (1, 1, 1), (SHARED_STEPS, found)), SHARED_STEPS)
    peak = hierarchy.shared_peak(multiprocessors, clock) if clock else None
    return Level("shared memory", moved / seconds, latency, cycles, float(THREADS * VECTOR_BYTES), peak)


def _l2(multiprocessors: int, l2_bytes: int) -> Level:
    import torch

    size = l2_bytes // hierarchy.L2_SHARE // LINE_BYTES * LINE_BYTES
    data = torch.zeros(size, dtype=torch.uint8, device="cuda")
    seconds = _read_seconds(multiprocessors, data, L2_PASSES)
    table = _table(size // LINE_BYTES)
    chase = compiled(SOURCE, "chase_global")
    # A whole round comes first. It fetches every line into the partition that this SM reads from.
    cycles, latency = _chase(
        lambda found: chase((1, 1, 1), (1, 1, 1), (table, size // LINE_BYTES, L2_STEPS, found)), L2_STEPS
    )
    return Level("L2", float(size) * L2_PASSES / seconds, latency, cycles, float(size))


def _device_memory(multiprocessors: int, l2_bytes: int, peak: float | None) -> tuple[Level, float]:
    import torch

    source = torch.ones(COPY_BYTES, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    read_seconds = _read_seconds(multiprocessors, source, 1)
    copy = compiled(SOURCE, "copy_global")
    vectors = COPY_BYTES // VECTOR_BYTES
    # Four vectors a thread are enough work under way without a loop.
    blocks = vectors // (4 * THREADS // 2)
    copy_seconds = best_seconds(lambda: copy((blocks, 1, 1), (THREADS // 2, 1, 1), (source, target, vectors)))
    size = hierarchy.HBM_MULTIPLE * l2_bytes // LINE_BYTES * LINE_BYTES
    table = _table(size // LINE_BYTES)
    chase = compiled(SOURCE, "chase_global")

    def once(found: Any) -> None:
        target.fill_(0)  # removes the table from the L2
        chase((1, 1, 1), (1, 1, 1), (table, 16, HBM_STEPS, found))

    cycles, latency = _chase(once, HBM_STEPS)
    level = Level("device memory", COPY_BYTES / read_seconds, latency, cycles, float(COPY_BYTES), peak)
    return level, 2.0 * COPY_BYTES / copy_seconds


def _read_seconds(multiprocessors: int, data: Any, passes: int) -> float:
    import torch

    blocks = 2 * multiprocessors
    out = torch.empty(blocks * THREADS, dtype=torch.int32, device="cuda")
    read = compiled(SOURCE, "read_global")
    vectors = data.numel() // VECTOR_BYTES
    return best_seconds(lambda: read((blocks, 1, 1), (THREADS, 1, 1), (data, vectors, passes, out)))


def _table(lines: int) -> Any:
    """A chase's table with the addresses at which it lies."""
    import torch

    table = hierarchy.ring(lines, 0, torch.Generator(device="cuda").manual_seed(0))
    table[:, 0] += table.data_ptr()
    return table


def _chase(launch: Callable[[Any], None], steps: int) -> tuple[float, float]:
    """Cycles and seconds of a step, medians over CHASES."""
    import torch

    found = []
    for _ in range(CHASES):
        out = torch.zeros(3, dtype=torch.int64, device="cuda")
        launch(out)
        cycles, nanoseconds, _last = out.tolist()
        found.append((cycles / steps, nanoseconds * 1e-9 / steps))
    return statistics.median(one[0] for one in found), statistics.median(one[1] for one in found)
