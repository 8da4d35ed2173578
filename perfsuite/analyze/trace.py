"""The reading of a trace: what the device's time went to, what the host waited for. Arithmetic on plain values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

RANGE = "perfsuite: call"
"""The range that each traced call stands in."""
SYNCHRONISING = ("cudaDeviceSynchronize", "cudaStreamSynchronize", "cudaEventSynchronize")
DEAREST = 10
MUCH = 0.20
"""A share above it is worth a word."""
KINDS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("attention", re.compile(r"attention|sdpa", re.IGNORECASE)),
    ("matmul", re.compile(r"(^|::)_?(\w*gemm|mm|bmm|addmm|baddbmm|matmul|linear|scaled_mm|convolution)(_out)?$")),
    ("copy", re.compile(r"(^|::)(copy_|_to_copy|clone|contiguous|cat|stack)$|^Memcpy")),
    ("softmax", re.compile(r"softmax")),
    ("normalisation", re.compile(r"norm")),
)


@dataclass(frozen=True)
class Operator:
    """An operator over all traced calls: its own time, without what it calls. Seconds and bytes."""

    name: str
    calls: int
    device_seconds: float
    host_seconds: float
    bytes: float
    """That it allocated on the device, less what it freed."""

    @property
    def kind(self) -> str:
        """ "matmul", "copy", ...; "other" for what has no name here."""
        return next((kind for kind, pattern in KINDS if pattern.search(self.name)), "other")


@dataclass(frozen=True)
class Kernel:
    """A kernel over all traced calls."""

    name: str
    launches: int
    seconds: float


@dataclass(frozen=True)
class Trace:
    """What was seen of `calls` calls; seconds are a call's."""

    calls: int
    seconds: float
    """From the first call's begin to the last one's end on the device, a call."""
    host_seconds: float
    """Until a call returned."""
    device_seconds: float
    """In which the device was busy."""
    waiting_seconds: float
    """That the host spent in synchronisations inside calls."""
    waits: float
    """Synchronisations inside a call."""
    copied_seconds: float
    """Of the copy engines."""
    kernels_a_call: float
    operators: tuple[Operator, ...]
    kernels: tuple[Kernel, ...]
    peak_bytes: float | None = None
    """Most that the allocator held at once during the calls."""


@dataclass(frozen=True)
class Reading:
    """One line of the reading: a share of the time, and what it means."""

    what: str
    share: float
    words: str


def dearest(operators: Iterable[Operator], by: str) -> list[Operator]:
    """The DEAREST operators by "device_seconds" or "bytes", none without a share in it."""
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
    if kind == "matmul":
        return "tensor cores decide: sizes that are multiples of 16, lower precision" if share > MUCH else ""
    if kind == "attention":
        return "see `perfsuite roofline` for what it could reach" if share > MUCH else ""
    if kind == "copy":
        return "layouts or dtypes change too often, or data crosses to the host" if share > MUCH else "little"
    return "elementwise work: fusion (torch.compile) saves its passes over memory" if share > MUCH else ""


def _balance(trace: Trace) -> str:
    if trace.host_seconds > trace.device_seconds:
        return (
            f"the host takes longer ({trace.host_seconds * 1e6:.4g} us) than the device "
            f"({trace.device_seconds * 1e6:.4g} us): launches bound it; CUDA graphs, fusion"
        )
    return (
        f"the device takes longer ({trace.device_seconds * 1e6:.4g} us) than the host "
        f"({trace.host_seconds * 1e6:.4g} us): kernels bound it"
    )


def _share(part: float, whole: float) -> float:
    return part / whole if whole > 0 else 0.0


def fused(kernels: Sequence[Kernel], calls: int) -> str:
    """How many kernels a call takes, in words."""
    count = sum(kernel.launches for kernel in kernels) / calls
    return "1 kernel a call: fused" if count == 1 else f"{count:g} kernels a call"
