"""Reads a trace: what the device spent its time on, and what the host waited for. Arithmetic on plain values."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

RANGE = "perfsuite: call"
"""Name of the profiler's range around each traced call."""
SYNCHRONISING = ("cudaDeviceSynchronize", "cudaStreamSynchronize", "cudaEventSynchronize")
DEAREST = 10
MUCH = 0.20
"""Share above which a reading gives advice."""
KINDS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("attention", re.compile(r"attention|sdpa", re.IGNORECASE)),
    ("matmul", re.compile(r"(^|::)_?(\w*gemm|mm|bmm|addmm|baddbmm|matmul|linear|scaled_mm|convolution)(_out)?$")),
    ("copy", re.compile(r"(^|::)(copy_|_to_copy|clone|contiguous|cat|stack)$|^Memcpy")),
    ("softmax", re.compile(r"softmax")),
    ("normalisation", re.compile(r"norm")),
)


@dataclass(frozen=True)
class Operator:
    """An operator over all traced calls: its own seconds and bytes, without those of the operators that it calls."""

    name: str
    calls: int
    device_seconds: float
    host_seconds: float
    bytes: float
    """Bytes that it allocated on the device, less those that it freed."""

    @property
    def kind(self) -> str:
        """A name from KINDS, or "other"."""
        return next((kind for kind, pattern in KINDS if pattern.search(self.name)), "other")


@dataclass(frozen=True)
class Kernel:
    """A kernel over all traced calls."""

    name: str
    launches: int
    seconds: float


@dataclass(frozen=True)
class Trace:
    """A trace of `calls` calls; seconds are those of one call."""

    calls: int
    seconds: float
    """From the begin of the first call to the end of the last on the device, divided by the calls."""
    host_seconds: float
    """Until the call returned."""
    device_seconds: float
    """Time in which the device was busy."""
    waiting_seconds: float
    """Time that the host spent in synchronisations inside the call."""
    waits: float
    """Number of synchronisations inside the call."""
    copied_seconds: float
    """Time in which the copy engines worked."""
    kernels_a_call: float
    operators: tuple[Operator, ...]
    kernels: tuple[Kernel, ...]
    peak_bytes: float | None = None
    """Most bytes that the allocator held at once during the calls."""

    @property
    def fused(self) -> str:
        """The number of kernels a call, in words."""
        return "1 kernel a call: fused" if self.kernels_a_call == 1 else f"{self.kernels_a_call:g} kernels a call"


@dataclass(frozen=True)
class Reading:
    """One line of the reading: a share of the time, and its meaning."""

    what: str
    share: float
    words: str


def dearest(operators: Iterable[Operator], by: str) -> list[Operator]:
    """The DEAREST operators by "device_seconds" or "bytes", without those of 0."""
    ordered = sorted(operators, key=lambda one: getattr(one, by), reverse=True)
    return [one for one in ordered if getattr(one, by) > 0][:DEAREST]


def read(trace: Trace) -> list[Reading]:
    """Shares of the device's time by kind of operator, then what the host did meanwhile."""
    total = sum(one.device_seconds for one in trace.operators)
    found = []
    for kind in [kind for kind, _ in KINDS] + ["other"]:
        share = _share(sum(one.device_seconds for one in trace.operators if one.kind == kind), total)
        if share > 0:
            found.append(Reading(f"{kind} of device time", share, _words(kind, share)))
    waiting = _share(trace.waiting_seconds, trace.seconds)
    words = "the host waits for the device: find the line with `perfsuite diagnose`" if trace.waits else "no waits"
    found.append(Reading("synchronisation of the time", waiting, words))
    busy = _share(trace.device_seconds, trace.seconds)
    found.append(Reading("device busy of the time", busy, _balance(trace)))
    return found


def _words(kind: str, share: float) -> str:
    if share <= MUCH:
        return "little" if kind == "copy" else ""
    advice = {
        "matmul": "tensor cores decide: sizes that are multiples of 16, lower precision",
        "attention": "see `perfsuite roofline` for what it could reach",
        "copy": "layouts or dtypes change too often, or data crosses to the host",
    }
    return advice.get(kind, "elementwise work: fusion (torch.compile) saves its passes over memory")


def _balance(trace: Trace) -> str:
    host, device = f"({trace.host_seconds * 1e6:.4g} us)", f"({trace.device_seconds * 1e6:.4g} us)"
    if trace.host_seconds > trace.device_seconds:
        return f"the host takes longer {host} than the device {device}: launches bound it; CUDA graphs, fusion"
    return f"the device takes longer {device} than the host {host}: kernels bound it"


def _share(part: float, whole: float) -> float:
    return part / whole if whole > 0 else 0.0
