"""Formats numbers for the sentence of a verdict."""

from __future__ import annotations

import math

from perfsuite.device.telemetry import Telemetry


def time_text(seconds: float) -> str:
    """Three significant digits with a fitting unit: "3.41 us"."""
    for factor, unit in ((1.0, "s"), (1e3, "ms"), (1e6, "us")):
        if seconds * factor >= 1.0:
            return f"{_three(seconds * factor)} {unit}"
    return f"{_three(seconds * 1e9)} ns"


def _three(value: float) -> str:
    """Three significant digits, never an exponent."""
    digits = 2 - math.floor(math.log10(abs(value))) if value else 0
    return f"{value:.{max(0, digits)}f}"


def interval_text(low: float, high: float) -> str:
    """ "[0.912, 0.918]"; an end that is not known yet is left open."""
    left = f"{low:.3f}" if low > 1e-6 else "0"
    right = f"{high:.3f}" if high < 1e6 else "inf"
    return f"[{left}, {right}]"


def clock_text(telemetry: Telemetry, cycles_speed: float | None, speed: float) -> str:
    """The end of the sentence: the SM clock, and the part of the ratio that it explains."""
    clock = telemetry.sm_clock_hz
    if clock is None:
        return "; SM clock unknown, so time and cycles cannot be told apart"
    capped = " under the power cap" if "sw-power-cap" in telemetry.reasons else ""
    low, high = telemetry.sm_clock_low_hz or clock, telemetry.sm_clock_high_hz or clock
    span = f"{clock / 1e9:.2f} GHz" if high - low < 0.01 * clock else f"{low / 1e9:.2f} to {high / 1e9:.2f} GHz"
    if cycles_speed is not None and abs(cycles_speed / speed - 1.0) > 0.005:
        return f"; in cycles {cycles_speed:.3f}, the rest is clock ({span}{capped})"
    return f"; both sides at {span}{capped}, so the ratio is one of cycles"
