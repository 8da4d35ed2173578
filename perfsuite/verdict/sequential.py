"""The sequential test: it looks at paired rounds several times, and its looks share the error."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from perfsuite.clock.rounds import SIDES, Round
from perfsuite.outcome import Verdict
from perfsuite.verdict.interval import median_interval, normal_quantile
from perfsuite.verdict.noise import Noise

FEWEST_OF_AN_ORDER = 3
"""Rounds of each order from which the effect of the order is taken off."""


@dataclass(frozen=True)
class Estimate:
    """The median ratio over some rounds, with its interval. Ratios are rival seconds over candidate seconds."""

    speed: float
    low: float
    high: float


def spent_at(look: int, alpha: float) -> float:
    """The part of `alpha` that look number k (from 1) spends: alpha / (k (k + 1)). The sum over all k is alpha.

    It is a spending function (K. K. G. Lan and D. L. DeMets, Biometrika 70, 1983), so the number of looks is open. The
    errors of the looks are added, which assumes no independence.
    """
    return alpha / (look * (look + 1))


def estimate(
    rounds: Sequence[Round], alpha: float, noise: Noise, processes: int = 1, *, crossed: bool = False
) -> Estimate:
    """Median ratio and an interval each of whose ends is wrong with probability at most about `alpha`.

    crossed: in each round the order of the sides matters, and it changes from round to round.

    Order statistics give the half-width within a set-up, without assuming a distribution. The normal noise between
    set-ups and processes gives another. Both are at level `alpha` and are added in quadrature.
    """
    logs = without_order(rounds) if crossed else [math.log(one.speed) for one in rounds]
    centre = statistics.median(logs)
    low, high = median_interval(logs, alpha)
    between = normal_quantile(alpha) * noise.of_mean(len({one.setup for one in rounds}), processes)
    return Estimate(
        speed=math.exp(centre),
        low=math.exp(centre - math.hypot(centre - low, between)),
        high=math.exp(min(centre + math.hypot(high - centre, between), 700.0)),
    )


def without_order(rounds: Sequence[Round]) -> list[float]:
    """Logs of the ratios, less what it does to a ratio which side comes first: half the distance of both medians.

    An error of that distance moves as many ratios up as down, and so hardly moves their median.
    """
    logs = [math.log(one.speed) for one in rounds]
    groups = [[log for log, one in zip(logs, rounds, strict=True) if one.first == side] for side in SIDES]
    if min(map(len, groups)) < FEWEST_OF_AN_ORDER:
        return logs
    first, second = map(statistics.median, groups)
    half = (first - second) / 2.0
    return [log - (half if one.first == SIDES[0] else -half) for log, one in zip(logs, rounds, strict=True)]


@dataclass
class SequentialTest:
    """Decides at every look: the speed is at least `target` (MET), below it (MISSED), or not known yet (None).

    `alpha` bounds the probability of a wrong verdict over all looks. MET and MISSED may each spend it all, since only
    one of the two can be wrong.
    """

    target: float
    alpha: float
    noise: Noise
    crossed: bool = False
    """True if the order of the sides matters in each round."""
    looks: int = 0
    last: Estimate | None = None

    def look(self, rounds: Sequence[Round], processes: int = 1) -> Verdict | None:
        """Look at all rounds so far."""
        self.looks += 1
        self.last = estimate(rounds, spent_at(self.looks, self.alpha), self.noise, processes, crossed=self.crossed)
        if self.last.low >= self.target:
            return Verdict.MET
        if self.last.high < self.target:
            return Verdict.MISSED
        return None
