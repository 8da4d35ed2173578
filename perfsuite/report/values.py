"""The gated value of a case: a speed, a share of the attainable, or another limited quantity."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from perfsuite.record.case import Case

Kind = Literal["speed", "share", "limit"]

MAIN_MEASURE = {"growth": "exponent", "alignment": "drop", "memory": "peak_bytes", "no_sync": "synchronises"}
"""Aspect -> the measured quantity that its limit is about, where the names differ."""


@dataclass(frozen=True)
class Gated:
    """The quantity that a case's gate limits."""

    kind: Kind
    """ "speed": the rival's time over the candidate's. "share": of the attainable. "limit": any other quantity."""
    value: float | None
    low: float | None = None
    high: float | None = None
    target: float | None = None
    seconds: float | None = None
    """Seconds a call of the candidate."""
    ceiling: float | None = None
    """The attainable FLOPs a second, measured in the same run."""

    @property
    def to_target(self) -> float | None:
        """The distance from the target as a share of it, below 0 for a miss; None without a value or a target."""
        return self.value / self.target - 1.0 if self.value is not None and self.target else None


def _asked(sentence: str) -> float | None:
    """The share that a sentence says was asked: records up to harness 2 have no other place for it."""
    found = re.search(r"at least (\d+(?:\.\d+)?)\s?% asked", sentence)
    return float(found[1]) / 100.0 if found else None


def gated(case: Case) -> Gated:
    """The gated value of a case."""
    measured = case.measured or {}
    if case.aspect == "roofline":
        seconds = measured.get("seconds") or case.candidate_seconds
        return Gated(
            "share",
            measured.get("share"),
            target=measured.get("asked_share") or _asked(case.sentence),
            seconds=seconds,
            ceiling=measured.get("attainable_flops"),
        )
    if case.aspect is not None:
        return Gated("limit", measured.get(MAIN_MEASURE.get(case.aspect, case.aspect)))
    return Gated("speed", case.speed, case.speed_low, case.speed_high, case.target, case.candidate_seconds)
