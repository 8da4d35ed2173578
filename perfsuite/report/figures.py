"""Formats ratios, seconds and intervals, and orders and counts cases. Units appear here only."""

from __future__ import annotations

from collections.abc import Sequence

from perfsuite.record.case import Case

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


def speed(case: Case) -> float | None:
    """The speed as a fraction of the rival's, or the share of the roofline that was reached; else None."""
    return (case.measured or {}).get("share") if case.aspect == "roofline" else case.speed


def interval(case: Case) -> str:
    """ "0.931-0.937": the ends of the interval on the speed."""
    low, high = case.speed_low, case.speed_high
    return "-" if low is None or high is None else f"{ratio(low)}-{ratio(high)}"


def target(case: Case) -> str:
    """ "0.90": the least speed asked for."""
    value = case.target
    return "-" if value is None else f"{value:.2f}" if value >= 0.095 else f"{value:.3g}"


def rival(case: Case) -> str:
    """The rival, a function without its module; without a rival the aspect that is limited, in brackets."""
    return (case.rival or (f"({case.aspect})" if case.aspect else "-")).rpartition(".")[2]


def candidate(case: Case) -> str:
    """The function's own name, without its module."""
    return case.candidate.rpartition(".")[2]


def label(case: Case) -> str:
    """The case's name in a table: the function and the problem, types by their usual short names."""
    return f"{candidate(case)} {short_types(case.name)}"


def short_types(name: str) -> str:
    """ "fp16" for "float16", wherever it stands in a problem's name."""
    for full, brief in (("bfloat16", "bf16"), ("float16", "fp16"), ("float32", "fp32"), ("float64", "fp64")):
        name = name.replace(full, brief)
    return name


def worst_first(cases: Sequence[Case]) -> list[Case]:
    """WRONG, MISSED, UNDECIDED, MET; within each, the furthest below its target first."""

    def key(case: Case) -> tuple[int, float]:
        margin = float("inf") if case.speed is None else case.speed / (case.target or 1.0)
        return WORST_FIRST.index(case.verdict), margin

    return sorted(cases, key=key)


def counts(cases: Sequence[Case]) -> str:
    """ "12 met, 1 missed": cases by verdict, the worst verdict last so that the eye ends on it."""
    found = [(name, sum(case.verdict == name for case in cases)) for name in reversed(WORST_FIRST)]
    return ", ".join(f"{count} {name.lower()}" for name, count in found if count)


def checking(cases: Sequence[Case]) -> str:
    """ "; checks took 4.1 s, 16% on top of 26 s": the cost of checking the answers; "" where no case has it."""
    checks = sum(case.check_seconds or 0.0 for case in cases)
    rest = sum(case.wall_seconds or 0.0 for case in cases) - checks
    if checks <= 0 or rest <= 0:
        return ""
    return f"; checks took {seconds(checks)}, {checks / rest:.0%} on top of {seconds(rest)}"


def short(text: str, width: int) -> str:
    """The text, its middle left out where it is longer than `width`."""
    if len(text) <= width:
        return text
    head = (width - 2) // 2
    return f"{text[:head]}..{text[len(text) - (width - 2 - head) :]}"
