"""Reads a kernel's hardware counters from Nsight Compute's CSV, and compares them with the usual targets.

Source of the metrics' names: Nsight Compute's documentation, "Metrics Reference" and "Metrics Decoder".
"""

from __future__ import annotations

import csv
import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

SECTIONS = (
    "SpeedOfLight",
    "ComputeWorkloadAnalysis",
    "MemoryWorkloadAnalysis",
    "Occupancy",
    "LaunchStats",
    "WarpStateStats",
)
METRICS = (
    "gpu__time_duration.sum",
    "dram__bytes_read.sum",
    "dram__bytes_write.sum",
    "lts__t_sector_hit_rate.pct",
    "sm__warps_active.avg.pct_of_peak_sustained_active",
    "l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum",
    "l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum",
)
"""Requested by name, because no section is certain to contain them."""
LEAST_OCCUPANCY = 0.60
LEAST_MEMORY_THROUGHPUT = 0.70
"""Share of the peak, for a kernel that memory bounds."""
LEAST_L2_HIT_RATE = 0.60
SECTOR_BYTES = 32.0
_STALL = re.compile(
    r"smsp__average_(?:warps?_issue_stalled_(\w+?)_per_issue_active\.ratio|warps_issue_stalled_(\w+?)_per_issue_active)$"
)
_TENSOR = re.compile(r"sm__(inst_executed_)?pipe_tensor\w*\.(avg|sum)\.pct_of_peak_sustained_(active|elapsed)$")
STALLS: Mapping[str, str] = {
    "long_scoreboard": "waits for global or local memory: more loads in flight, or reuse from shared memory",
    "short_scoreboard": "waits for shared memory or special functions: bank conflicts, exponentials",
    "lg_throttle": "the queue to global memory is full: fewer and wider loads",
    "mio_throttle": "the queue to shared memory and special functions is full: wider accesses",
    "math_pipe_throttle": "waits for an arithmetic unit: what a compute-bound kernel should wait for",
    "barrier": "waits for other warps of its block: less uneven work between barriers",
    "wait": "fixed latency between dependent instructions: more independent work a warp",
    "not_selected": "was ready, another warp went: enough warps",
    "no_instruction": "instruction cache misses or jumps: a smaller loop body",
    "gmma": "waits for wgmma: what a kernel on Hopper's tensor cores should wait for",
    "tex_throttle": "the queue of the texture unit is full",
    "drain": "waits for stores at its end: fewer or better ordered stores",
    "branch_resolving": "waits for a jump's target",
    "membar": "waits for a memory fence",
    "sleeping": "sleeps by request",
    "imc_miss": "waits for constants",
    "dispatch_stall": "the dispatcher holds it back",
    "misc": "something else",
}
"""Stall reason of a warp -> its meaning, and a remedy."""


class CountersError(Exception):
    """The output of ncu cannot be read; the text gives the reason."""


@dataclass(frozen=True)
class Kernel:
    """The counters of one launch. Shares are of the peak, 0 to 1; None if ncu did not report them."""

    name: str
    seconds: float
    read_bytes: float
    """From device memory, as `written_bytes` are to it."""
    written_bytes: float
    memory_share: float | None
    compute_share: float | None
    tensor_share: float | None
    occupancy: float | None
    theoretical_occupancy: float | None
    l2_hit_rate: float | None
    registers: int | None
    local_bytes: float
    """Traffic of local memory through L1: spills, and arrays that are indexed at run time."""
    stalls: tuple[tuple[str, float], ...]
    """Reasons for which warps waited, with cycles per issued instruction, longest first."""

    @property
    def dram_bytes(self) -> float:
        return self.read_bytes + self.written_bytes


@dataclass(frozen=True)
class Check:
    """A counter against its target; `ok` is None if this kernel has no such target."""

    what: str
    value: float | None
    target: float | None
    ok: bool | None
    words: str = ""


def read(lines: Iterable[str]) -> list[Kernel]:
    """The kernels in the output of `ncu --csv --page raw --print-units base`; CountersError if it has no kernel."""
    body = itertools.dropwhile(lambda line: not line.startswith('"ID"'), lines)
    table = csv.reader(line for line in body if line.strip() and not line.startswith("=="))
    head, _units = next(table, []), next(table, [])
    found = [_kernel(dict(zip(head, row, strict=False))) for row in table]
    if not found:
        raise CountersError("ncu profiled no kernel")
    return found


def _kernel(row: Mapping[str, str]) -> Kernel:
    values = {name: number for name, text in row.items() if (number := _number(text)) is not None}

    def share(name: str) -> float | None:
        return values[name] / 100.0 if name in values else None

    def needed(name: str) -> float:
        if name not in values:
            raise CountersError(f"ncu gave no {name} for {row.get('Kernel Name', 'a kernel')}")
        return values[name]

    tensor = [number for name, number in values.items() if _TENSOR.search(name)]
    registers = values.get("launch__registers_per_thread")
    sectors = [values.get(f"l1tex__t_sectors_pipe_lsu_mem_local_op_{way}.sum", 0.0) for way in ("ld", "st")]
    return Kernel(
        name=row["Kernel Name"],
        seconds=needed("gpu__time_duration.sum") / 1e9,
        read_bytes=needed("dram__bytes_read.sum"),
        written_bytes=needed("dram__bytes_write.sum"),
        memory_share=share("dram__throughput.avg.pct_of_peak_sustained_elapsed")
        or share("gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"),
        compute_share=share("sm__throughput.avg.pct_of_peak_sustained_elapsed"),
        tensor_share=max(tensor) / 100.0 if tensor else None,
        occupancy=share("sm__warps_active.avg.pct_of_peak_sustained_active"),
        theoretical_occupancy=share("sm__maximum_warps_per_active_cycle_pct"),
        l2_hit_rate=share("lts__t_sector_hit_rate.pct"),
        registers=None if registers is None else int(registers),
        local_bytes=SECTOR_BYTES * sum(sectors),
        stalls=_stalls(values),
    )


def _stalls(values: Mapping[str, float]) -> tuple[tuple[str, float], ...]:
    matches = ((_STALL.search(name), number) for name, number in values.items())
    found = [(match[1] or match[2], number) for match, number in matches if match and number]
    # A selected warp issues, which is no stall.
    return tuple(sorted((one for one in found if one[0] != "selected"), key=lambda one: -one[1]))


def _number(text: str) -> float | None:
    """The number in a cell, in which ncu groups thousands by commas; None for other text."""
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return None


def memory_bound(kernel: Kernel) -> bool:
    """True if device memory works at least as hard, against its peak, as the SMs do."""
    return (kernel.memory_share or 0.0) >= (kernel.compute_share or 0.0)


def check(kernel: Kernel) -> list[Check]:
    """Each counter against its target; throughput has one if memory bounds the kernel, otherwise L2's hit rate has."""
    memory = memory_bound(kernel)
    occupancy = _against("occupancy", kernel.occupancy, LEAST_OCCUPANCY)
    if occupancy.ok is False:
        few = f"registers ({kernel.registers} a thread), shared memory or the grid allow no more warps"
        theory = kernel.theoretical_occupancy
        if theory is not None and kernel.occupancy is not None and theory - kernel.occupancy > 0.15:
            few = f"{theory:.0%} would fit: too few blocks, or blocks of uneven work"
        fine = "" if memory else "; enough where each warp keeps the tensor cores or a deep pipeline busy"
        occupancy = replace(occupancy, words=few + fine)
    throughput = _against("memory throughput", kernel.memory_share, LEAST_MEMORY_THROUGHPUT if memory else None)
    hits = _against("L2 hit rate", kernel.l2_hit_rate, None if memory else LEAST_L2_HIT_RATE)
    if memory:
        hits = replace(hits, words="what is read once cannot hit")
    words = "spilled registers or indexed arrays" if kernel.local_bytes else ""
    return [occupancy, throughput, hits, Check("local memory", kernel.local_bytes, 0.0, not kernel.local_bytes, words)]


def _against(what: str, value: float | None, target: float | None) -> Check:
    return Check(what, value, target, None if value is None or target is None else value >= target)


def verdict(kernel: Kernel) -> str:
    """One sentence with the kernel's bound, the longest wait of its warps, and the targets that it misses."""
    shares = {"device memory": kernel.memory_share, "the SMs": kernel.compute_share}
    known = {name: share for name, share in shares.items() if share is not None}
    if not known:
        return "ncu gave no throughput"
    busiest, share = max(known.items(), key=lambda one: one[1])
    said = f"{busiest} at {share:.0%} of the peak"
    if share < LEAST_OCCUPANCY:
        said = f"neither memory nor the SMs are busy ({said}): latency, or too small a grid"
    if kernel.stalls:
        reason, cycles = kernel.stalls[0]
        advice = STALLS.get(reason, "see ncu")
        said += f"; warps wait longest for {reason} ({cycles:.3g} cycles an instruction: {advice})"
    missed = [one.what for one in check(kernel) if one.ok is False]
    return f"{said}; below target: {', '.join(missed)}" if missed else f"{said}; all targets met"


def bytes_ratio(kernels: Sequence[Kernel], expected: float) -> float:
    """Bytes counted at device memory over those that a call must move at least."""
    return sum(kernel.dram_bytes for kernel in kernels) / expected
