"""Rules of a gate: the regression margin, suspects, obvious verdicts, and reasons for UNDECIDED."""

from __future__ import annotations

import math
from collections.abc import Sequence

from perfsuite.clock.rounds import Round
from perfsuite.outcome import Reason, Verdict
from perfsuite.verdict.sequential import Estimate

REGRESSION_MARGIN = 0.005
"""A candidate has regressed when it is slower than its rival by more than this share, beyond the interval. It is half
of the 1 % that a gate must find, so identical code and a 1 % slow-down are equally far from the line."""
SHARP_MARGIN = 0.0025
"""A margin for calls of at least SHARP_SECONDS, by which half a per cent is found."""
SHARP_SECONDS = 20e-6
SUSPECT_BAND = 0.10
"""A miss by less than this share of the target is a suspect: it is set up afresh before it fails. A larger miss cannot
be noise."""
NEAR_BAND, NEAR_WIDTHS = 0.05, 4.0
"""A suspect is measured in a fresh process too, unless it misses the target by more than this share and by more than so
many half-widths of its interval. In no suspect of the records was the median of a fresh process so far from that of the
first one (`tests/verdict/test_near_the_target.py`); FP8 products come nearest."""
GROSS_ROUNDS = 4
GROSS_FACTOR = 1.5
"""If the budget is too small for the rounds of a first look, GROSS_ROUNDS rounds decide, all of them beyond the target
by this factor. No card is off by half four times in a row. The interval stays open."""


def regression_target(margin: float = REGRESSION_MARGIN) -> float:
    """The least speed, against its earlier version, at which a kernel has not regressed."""
    return 1.0 - margin


def is_regression_target(target: float | None) -> bool:
    """True if only an earlier version of the candidate is asked for such a speed."""
    return target in (regression_target(), regression_target(SHARP_MARGIN))


def is_suspect(estimate: Estimate, target: float) -> bool:
    """True for a miss so near the target that it is measured again."""
    return estimate.high >= target * (1.0 - SUSPECT_BAND)


def is_near(estimate: Estimate, target: float) -> bool:
    """True for a miss that another process might not confirm; beyond that, noise is several times what is known."""
    missed, width = math.log(target / estimate.speed), math.log(estimate.high / estimate.speed)
    return missed < max(-math.log1p(-NEAR_BAND), NEAR_WIDTHS * width)


def gross(rounds: Sequence[Round], target: float) -> Verdict | None:
    """MET or MISSED if a few rounds leave no doubt, else None."""
    if len(rounds) < GROSS_ROUNDS:
        return None
    if all(one.speed >= target * GROSS_FACTOR for one in rounds):
        return Verdict.MET
    if all(one.speed * GROSS_FACTOR < target for one in rounds):
        return Verdict.MISSED
    return None


def undecided(
    discarded: Sequence[Round],
    kept: Sequence[Round],
    others: int | None,
    allow_shared: bool,
    contradicted: bool = False,
) -> Reason:
    """The reason of an undecided case. contradicted: a fresh process did not confirm a miss."""
    if others and not allow_shared:
        return Reason.SHARED_DEVICE
    if discarded and len(discarded) >= len(kept):
        return Reason.THROTTLED
    if not kept:
        return Reason.NO_ROUNDS
    return Reason.PROCESSES_DISAGREE if contradicted else Reason.BUDGET_SPENT
