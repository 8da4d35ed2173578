"""The quantities of a case that two records can be compared by: speed, share of the roofline, limits, errors.

Most have two parts: the candidate's own, and the yardstick's (the rival, the ceiling, the rival's error). So a reader
learns whether the kernel changed or its yardstick.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from perfsuite.record import kernels
from perfsuite.record.case import Case
from perfsuite.report import figures

LEAST_ERROR = 1.5
"""Smaller factors of an error are not reported: other seeds give other inputs, and errors of a few elements vary."""
_LIMITS = {
    "memory": ("peak_bytes",),
    "growth": ("peak_bytes", "peak_bytes_doubled"),
    "launches": ("launches",),
    "no_sync": ("synchronises",),
}
"""Aspect -> its measured values, of which less is better."""


@dataclass(slots=True)
class Quantity:
    """One quantity of a case. `value` is what is judged: more is better for "time", less for "cost" and "error"."""

    kind: str
    value: float
    low: float | None = None
    high: float | None = None
    own: float | None = None
    """The candidate's own part, of which less is better: seconds, or its error."""
    cycles: float | None = None
    """`own` in SM cycles, if the clock is known."""
    yardstick: float | None = None
    """The other part; the value gets worse as it rises."""
    sampled: bool = False
    """True if the value has an interval, without which a change of it cannot be told."""
    says: Callable[[], str] = str
    """Both parts in words. Of most quantities nobody asks for them."""


def quantities(case: Case) -> Iterator[tuple[str, Quantity]]:
    """(name, quantity) of each quantity that the case has."""
    measured = case.measured or {}
    if case.speed is not None:
        yield "speed", _speed(case)
    if case.aspect == "roofline" and (share := measured.get("share", 0.0)) > 0:
        seconds, unit = measured.get("seconds"), "TFLOPS" if "attainable_flops" in measured else "TB/s"
        ceiling = measured.get("attainable_flops", measured.get("attainable_bytes"))
        yield (
            "share of the roofline",
            Quantity("time", share, own=seconds, yardstick=ceiling, says=lambda: _under(seconds, ceiling, unit)),
        )
    if case.aspect == "alignment" and measured.get("seconds", 0.0) > 0 and measured.get("misaligned_seconds", 0.0) > 0:
        own, there = measured["seconds"], measured["misaligned_seconds"]
        both = f"{figures.seconds(own)}, misaligned {figures.seconds(there)}"
        yield "slow-down of misaligned inputs", Quantity("time", own / there, says=lambda: both)
    for name in _LIMITS.get(case.aspect or "", ()):
        if name in measured:
            yield name, _cost(measured[name])
    if case.aspect == kernels.ASPECT:
        for kernel, values in kernels.by_kernel(measured):
            spilled = values.get("spilled_bytes", 0.0)
            yield f"spilled bytes of {kernel}", _cost(spilled)
    if case.candidate_error and case.rival_error:
        yield "error", _error(case.candidate_error, case.rival_error)


def worse(before: Quantity, after: Quantity) -> float:
    """The logarithm of the factor by which the judged value got worse; negative where it got better."""
    return _rise(after.value, before.value) if before.kind == "time" else _rise(before.value, after.value)


def kernel_part(before: Quantity, after: Quantity) -> float | None:
    """The part of `worse` that is the candidate's own; None if it is unknown.

    A card at another clock changes seconds, but not cycles. The larger of both counts, in the direction of the change.
    """
    parts = [
        _rise(one, two)
        for one, two in ((before.own, after.own), (before.cycles, after.cycles))
        if one is not None and two is not None
    ]
    direction = math.copysign(1.0, worse(before, after))
    return max(parts, key=lambda part: part * direction) if parts else None


def yardstick_part(before: Quantity, after: Quantity) -> float | None:
    """The part of `worse` that is the yardstick's; None if there is none or it is unknown."""
    if before.yardstick is None or after.yardstick is None:
        return None
    return _rise(before.yardstick, after.yardstick)


def _speed(case: Case) -> Quantity:
    own, rivals = case.candidate_seconds, case.rival_seconds
    clock = case.telemetry.sm_clock_hz if case.telemetry else None
    return Quantity(
        "time",
        case.speed or 0.0,
        case.speed_low,
        case.speed_high,
        own=own,
        cycles=own * clock if own and clock else None,
        yardstick=1.0 / rivals if rivals else None,
        sampled=True,
        says=lambda: f"{figures.seconds(own)} against the rival's {figures.seconds(rivals)}",
    )


def _cost(value: float) -> Quantity:
    return Quantity("cost", value, says=lambda: f"{value:.6g}")


def _error(own: float, rivals: float) -> Quantity:
    return Quantity(
        "error",
        own / rivals,
        own=own,
        yardstick=1.0 / rivals,
        says=lambda: f"{own:.3g}, the rival's {rivals:.3g}",
    )


def _under(seconds: float | None, ceiling: float | None, unit: str) -> str:
    return f"{figures.seconds(seconds)} under a ceiling of {(ceiling or 0.0) / 1e12:.4g} {unit}"


def _rise(low: float, high: float) -> float:
    """log(high / low), also where one of them is 0."""
    if low == high:
        return 0.0
    if low <= 0 or high <= 0:
        return math.inf if high > low else -math.inf
    return math.log(high / low)
