"""Figures as text: ratios, seconds, intervals. The one place where units appear."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

WORST_FIRST = ("WRONG", "MISSED", "UNDECIDED", "MET")
_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))


def seconds(value: float | None) -> str:
    """ "12.3 us": three figures and the unit that suits."""
    if value is None:
        return "-"
    for size, unit in _UNITS:
        if value >= size:
            return f"{value / size:.3g} {unit}" if value < 999.5 * size else f"{value / size:.0f} {unit}"
    return "0 s" if value == 0 else f"{value / 1e-9:.3g} ns"


def ratio(value: float | None) -> str:
    """ "0.934": three decimals below ten, fewer above."""
    if value is None:
        return "-"
    return f"{value:.3f}" if value < 10 else f"{value:.1f}"


def speed(case: Mapping[str, Any]) -> float | None:
    """The speed as a fraction of the rival's; of a roofline the share that was reached; None of all else."""
    value = (case.get("measured") or {}).get("share") if case.get("aspect") == "roofline" else case.get("speed")
    return None if value is None else float(value)


def interval(case: Mapping[str, Any]) -> str:
    """ "0.931-0.937": the ends of the interval on the speed."""
    low, high = case.get("speed_low"), case.get("speed_high")
    return "-" if low is None or high is None else f"{ratio(low)}-{ratio(high)}"


def target(case: Mapping[str, Any]) -> str:
    """ "0.90": the least speed asked for."""
    value = case.get("target")
    return "-" if value is None else f"{value:.2f}" if value >= 0.095 else f"{value:.3g}"


def rival(case: Mapping[str, Any]) -> str:
    """The rival, a function without its module; for what is limited by itself, what that is, in brackets."""
    aspect = case.get("aspect")
    return str(case["rival"] or (f"({aspect})" if aspect else "-")).rpartition(".")[2]


def candidate(case: Mapping[str, Any]) -> str:
    """The function's own name, without its module."""
    return str(case["candidate"]).rpartition(".")[2]


def label(case: Mapping[str, Any]) -> str:
    """What a table calls the case: the function and the problem, types by their usual short names."""
    name = str(case["name"])
    for full, brief in (("bfloat16", "bf16"), ("float16", "fp16"), ("float32", "fp32"), ("float64", "fp64")):
        name = name.replace(full, brief)
    return f"{candidate(case)} {name}"


def worst_first(cases: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """WRONG, MISSED, UNDECIDED, MET; within each, the furthest below its target first."""

    def key(case: Mapping[str, Any]) -> tuple[int, float]:
        speed, wanted = case.get("speed"), case.get("target")
        margin = float("inf") if speed is None else speed / (wanted or 1.0)
        return WORST_FIRST.index(case["verdict"]), margin

    return sorted(cases, key=key)


def counts(cases: Sequence[Mapping[str, Any]]) -> str:
    """ "12 met, 1 missed": how many came to what, worst last so that the eye ends on it."""
    found = [(name, sum(case["verdict"] == name for case in cases)) for name in reversed(WORST_FIRST)]
    return ", ".join(f"{count} {name.lower()}" for name, count in found if count)


def checking(cases: Sequence[Mapping[str, Any]]) -> str:
    """ "; checks took 4.1 s, 16% on top of 26 s": what it cost to make sure of the answers; "" where no case says."""
    checks = sum(case.get("check_seconds") or 0.0 for case in cases)
    rest = sum(case.get("wall_seconds") or 0.0 for case in cases) - checks
    if checks <= 0 or rest <= 0:
        return ""
    return f"; checks took {seconds(checks)}, {checks / rest:.0%} on top of {seconds(rest)}"


def short(text: str, width: int) -> str:
    """The text, its middle left out where it is longer than `width`."""
    if len(text) <= width:
        return text
    head = (width - 2) // 2
    return f"{text[:head]}..{text[len(text) - (width - 2 - head) :]}"
