"""Formats ratios, seconds and intervals, and orders and counts cases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from perfsuite.record.case import Case
from perfsuite.report.values import gated

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
    """The speed as a fraction of the rival's, or of the roofline's; None if the case has neither."""
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
    """The rival, a function without its module; for a case without a rival, the limited aspect in brackets."""
    return (case.rival or (f"({case.aspect})" if case.aspect else "-")).rpartition(".")[2]


def candidate(case: Case) -> str:
    """The function's own name, without its module."""
    return case.candidate.rpartition(".")[2]


def label(case: Case) -> str:
    """The case's name in a table: the label or the function, and the problem, with short names of types."""
    name = short_types(case.name)
    named = case.label or candidate(case)
    hot = ", hot" if case.cache == "hot" else ""
    # The name of a custom problem begins with the label already.
    begins = case.family == "custom" and name.split(" ")[0] == named.split(" ")[0]
    return f"{name}{hot}" if begins else f"{named} {name}{hot}"


def cells(case: Case) -> tuple[str, ...]:
    """The first cells of a case's row: its label, rival, speed, interval and target."""
    return label(case), rival(case), ratio(speed(case)), interval(case), target(case)


def seconds_cells(case: Case) -> tuple[str, str]:
    """The cells with the times of candidate and rival."""
    return seconds(case.candidate_seconds), seconds(case.rival_seconds)


def pair(case: Case) -> str:
    """ "gemm 64x64x64 fp16 / cublas": the label and the rival."""
    return f"{label(case)} / {rival(case)}"


def short_types(name: str) -> str:
    """ "fp16" for "float16", wherever it stands in a problem's name."""
    for full, brief in (("bfloat16", "bf16"), ("float16", "fp16"), ("float32", "fp32"), ("float64", "fp64")):
        name = name.replace(full, brief)
    return name


def worst_first(cases: Sequence[Case]) -> list[Case]:
    """Sorted by verdict as in WORST_FIRST; within a verdict, the case furthest below its target first."""
    return sorted(cases, key=badness)


def badness(case: Case) -> tuple[int, float]:
    """The key by which the worst case comes first."""
    value = gated(case)
    margin = value.to_target
    if margin is None:
        margin = float("inf") if value.kind == "limit" or value.value is None else value.value - 1.0
    return WORST_FIRST.index(case.verdict), margin


def counts(cases: Iterable[Case]) -> str:
    """ "12 met, 1 missed": the number of cases by verdict, the worst verdict last."""
    return counted(Counter(case.verdict for case in cases))


def counted(number: Mapping[str, int]) -> str:
    """The same of the number of cases with each verdict."""
    return ", ".join(f"{number[name]} {name.lower()}" for name in reversed(WORST_FIRST) if number.get(name))


def checking(cases: Sequence[Case]) -> str:
    """ "; checks took 4.1 s, 16% on top of 26 s": the cost of checking the answers; "" if no case has it."""
    checks = sum(case.check_seconds or 0.0 for case in cases)
    rest = sum(case.wall_seconds or 0.0 for case in cases) - checks
    if checks <= 0 or rest <= 0:
        return ""
    return f"; checks took {seconds(checks)}, {checks / rest:.0%} on top of {seconds(rest)}"


def checks_share(cases: Sequence[Case]) -> float | None:
    """The part of the cases' wall time that checking took, first examinations included; None if no case has both."""
    known = [case for case in cases if case.check_seconds is not None and case.wall_seconds]
    wall = sum(case.wall_seconds or 0.0 for case in known)
    return sum(case.check_seconds or 0.0 for case in known) / wall if wall else None
