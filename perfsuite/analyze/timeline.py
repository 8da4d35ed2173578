"""Intervals in which the device worked, from torch's profiler, and arithmetic on them. Times are in seconds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from perfsuite.outcome import UserError

Kind = Literal["kernel", "copy", "fill", "communication"]
Span = tuple[float, float]


class ProfilerError(UserError):
    """torch's profiler saw nothing of the device; the text names possible reasons."""


@dataclass(frozen=True)
class Event:
    """Something that ran on the device."""

    name: str
    start: float
    end: float

    @property
    def kind(self) -> Kind:
        """By the names that CUPTI and NCCL give."""
        lower = self.name.lower()
        if "nccl" in lower:
            return "communication"
        return "copy" if lower.startswith("memcpy") else "fill" if lower.startswith("memset") else "kernel"

    @property
    def span(self) -> Span:
        return self.start, self.end


def union(spans: Iterable[Span]) -> list[Span]:
    """The spans in order, with those that overlap or touch merged."""
    merged: list[Span] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


def length(spans: Iterable[Span]) -> float:
    """Time that spans cover together."""
    return sum(end - start for start, end in union(spans))


def exposed(spans: Iterable[Span], beside: Iterable[Span]) -> float:
    """Time that `spans` cover and `beside` do not."""
    first, second = list(spans), list(beside)
    return length([*first, *second]) - length(second)


@dataclass(frozen=True)
class Occupation:
    """The device's work for one call, as the mean over several."""

    busy: float
    """Seconds in which anything ran on it."""
    communication: float
    """Seconds in which only collectives ran."""
    kernels: float
    """Number of kernels, without copies and fills by the copy engine."""


def occupation(events: Sequence[Event], calls: int) -> Occupation:
    collective = [event.span for event in events if event.kind == "communication"]
    other = [event.span for event in events if event.kind != "communication"]
    kernels = sum(event.kind in ("kernel", "communication") for event in events)
    return Occupation(length([*collective, *other]) / calls, exposed(collective, other) / calls, kernels / calls)


def record(call: Callable[[], Any], calls: int) -> list[Event]:
    """Run `call` `calls` times under torch's profiler, and return the events on the device. Raises ProfilerError."""
    import torch

    torch.cuda.synchronize()
    kinds = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=kinds, acc_events=True) as profile:
        for _ in range(calls):
            call()
        torch.cuda.synchronize()
    events = device_events(profile.events())
    if not events:
        raise ProfilerError(
            "torch's profiler saw nothing run on the device: either the workload uses no GPU, or the profiler's access "
            "to the card (CUPTI) is barred"
        )
    return events


def device_events(events: Iterable[Any]) -> list[Event]:
    """The events of torch's profiler that ran on a device, in seconds."""
    import torch

    return [
        Event(event.name, event.time_range.start / 1e6, event.time_range.end / 1e6)
        for event in events
        if event.device_type == torch.autograd.DeviceType.CUDA and not getattr(event, "is_user_annotation", False)
    ]
