"""Compares two builds by processes: each process gives one number for a case, and the process is the unit of inference.

Rounds of one process share its addresses, heap and clocks, so more rounds say nothing about other processes.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from perfsuite.outcome import Reason
from perfsuite.record.case import Case, Samples
from perfsuite.verdict.interval import median_interval, normal_quantile
from perfsuite.verdict.noise import Noise
from perfsuite.verdict.sequential import Estimate

PRIOR_DEGREES = 10.0
"""Weight of the calibration's noise against the spread between the processes, in degrees of freedom."""
_WITHIN_ALPHA = 0.16
"""Level at which half a median's interval is about one standard error."""
_UNKNOWN = 0.01
"""Standard error of a median of too few rounds for an interval, in logarithms."""


@dataclass(frozen=True)
class Process:
    """One case in one process: the logarithm of its speed against the rival, with its error."""

    log_speed: float
    error: float
    """Standard error within the process."""
    setups: int
    seconds: float
    """Seconds a call of the candidate."""

    def variance(self, noise: Noise) -> float:
        """Variance of `log_speed` by the calibration."""
        return self.error**2 + noise.setup**2 / self.setups + noise.process**2


def process_of(case: Case) -> Process | None:
    """The process of a record's case; None if it was not timed, is wrong, or others used the card.

    The speed of a roofline case is its share of the ceiling, one number without rounds.
    """
    share = (case.measured or {}).get("share", 0.0) if case.aspect == "roofline" else 0.0
    if share > 0:
        return Process(math.log(share), _UNKNOWN, 1, (case.measured or {}).get("seconds", 0.0))
    if case.verdict == "WRONG" or not case.samples.candidate_seconds or was_shared(case):
        return None
    return process_of_samples(case.samples)


def process_of_samples(samples: Samples) -> Process:
    """The process of these rounds. There must be at least one."""
    mine, rivals = samples.candidate_seconds, samples.rival_seconds
    logs = [math.log(rival / own) for own, rival in zip(mine, rivals, strict=True)]
    low, high = median_interval(logs, _WITHIN_ALPHA)
    error = (high - low) / 2.0 if math.isfinite(high - low) else _UNKNOWN
    return Process(statistics.median(logs), error, len(set(samples.setup or [0])), statistics.median(mine))


def was_shared(case: Case) -> bool:
    """True if another process used the card, so that the times are not those of this build alone."""
    return case.reason == Reason.SHARED_DEVICE


def difference(base: Sequence[Process], head: Sequence[Process], alpha: float, noise: Noise) -> Estimate:
    """The speed of `head` over that of `base`, with an interval each of whose ends is wrong with probability `alpha`.

    The variance of a process is the mean of the calibration's and of that between these processes, weighted by their
    degrees of freedom (moderated t statistics: G. K. Smyth, Statistical Applications in Genetics and Molecular Biology
    3, 2004). A few processes do not show their spread, and the card may have been quieter during the calibration.
    """
    sides = (base, head)
    expected = statistics.fmean(process.variance(noise) for side in sides for process in side)
    seen = sum((p.log_speed - statistics.fmean(q.log_speed for q in side)) ** 2 for side in sides for p in side)
    degrees = PRIOR_DEGREES + sum(len(side) - 1 for side in sides)
    variance = (PRIOR_DEGREES * expected + seen) / degrees
    centre = statistics.fmean(p.log_speed for p in head) - statistics.fmean(p.log_speed for p in base)
    half = t_quantile(alpha, degrees) * math.sqrt(variance * sum(1.0 / len(side) for side in sides))
    return Estimate(math.exp(centre), math.exp(centre - half), math.exp(centre + half))


def t_quantile(alpha: float, degrees: float) -> float:
    """t with P(T > t) = alpha, by the expansion in 1/degrees (Abramowitz and Stegun, 26.7.5), from 8 degrees on.

    Raises ValueError for fewer, since the expansion is then wrong by some percent.
    """
    if degrees < 8.0:
        raise ValueError(f"degrees is {degrees!r}; it must be 8 or more")
    z = normal_quantile(alpha)
    terms = (
        (z**3 + z) / 4.0,
        (5.0 * z**5 + 16.0 * z**3 + 3.0 * z) / 96.0,
        (3.0 * z**7 + 19.0 * z**5 + 17.0 * z**3 - 15.0 * z) / 384.0,
        (79.0 * z**9 + 776.0 * z**7 + 1482.0 * z**5 - 1920.0 * z**3 - 945.0 * z) / 92160.0,
    )
    return z + sum(term / degrees ** (power + 1) for power, term in enumerate(terms))
