"""Renders a row for each case with the clock and the power of its rounds: does either limit the speed?"""

from __future__ import annotations

from collections.abc import Sequence

from perfsuite.record.case import Case
from perfsuite.report import figures, markdown

_HEAD = ("case", "rival", "speed", "in cycles", "SM clock, GHz", "power, W", "of at most", "the clock is lowered by")
_RULE = ("---", "---", "---:", "---:", "---:", "---:", "---:", "---")


def table(cases: Sequence[Case]) -> str:
    """One row a case, in the record's order. The speed in cycles is what would be left at equal clocks."""
    return markdown.grid([_HEAD, _RULE, *(tuple(map(markdown.escaped, _row(case))) for case in cases)])


def _row(case: Case) -> tuple[str, ...]:
    label, rival, speed, *_ = figures.cells(case)
    found = case.telemetry
    clocks = (found.sm_clock_low_hz, found.sm_clock_high_hz) if found else (None, None)
    ghz = [f"{one / 1e9:.2f}" for one in clocks if one is not None]
    power, most = (found.power_watts, found.power_limit_watts) if found else (None, None)
    cycles = None if case.aspect else case.cycles_speed
    reasons = ", ".join(found.reasons) if found else ""
    return (
        label,
        rival,
        speed,
        figures.ratio(cycles),
        " to ".join(ghz) or "-",
        _watts(power),
        _watts(most),
        reasons or "-",
    )


def _watts(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}"
