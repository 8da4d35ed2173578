"""What a gate asks: a share of the rival, no regression, and which misses are looked at again before they count."""

from __future__ import annotations

from collections.abc import Sequence

from perfsuite.clock.rounds import Round
from perfsuite.outcome import Reason, Verdict
from perfsuite.verdict.sequential import Estimate

REGRESSION_MARGIN = 0.005
"""A candidate has regressed when it is slower than its rival by more than this part, beyond the interval. Half of the
1 % that a gate is to find: identical code stays as far on this side of the line as a 1 % slow-down on the other."""
SUSPECT_BAND = 0.10
"""A miss by less than this part of the target is a suspect: it is set up and measured afresh before it fails. What
misses by more is not a matter of noise."""
GROSS_ROUNDS = 4
GROSS_FACTOR = 1.5
"""Where the budget does not hold the rounds of a first look: so many rounds, all of them beyond the target by this
factor, decide. No card is off by half four times in a row; the interval stays open."""


def regression_target(margin: float = REGRESSION_MARGIN) -> float:
    """The least speed against its former self at which a kernel has not regressed."""
    return 1.0 - margin


def is_suspect(estimate: Estimate, target: float) -> bool:
    """Whether a miss is near enough to the target to be measured again."""
    return estimate.high >= target * (1.0 - SUSPECT_BAND)


def gross(rounds: Sequence[Round], target: float) -> Verdict | None:
    """MET or MISSED where a few rounds leave no doubt, None where they do."""
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
    """Why a case stays undecided; `contradicted` says that a fresh process did not confirm a miss."""
    if others and not allow_shared:
        return Reason.SHARED_DEVICE
    if discarded and len(discarded) >= len(kept):
        return Reason.THROTTLED
    if not kept:
        return Reason.NO_ROUNDS
    return Reason.PROCESSES_DISAGREE if contradicted else Reason.BUDGET_SPENT
