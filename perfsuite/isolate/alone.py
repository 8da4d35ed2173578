"""The rival's time without the candidate. What a candidate leaves behind while its rival is timed shows in it.

It is taken before the candidate's process starts, by the protocol of the rounds. If the rounds' rival is slower than
that by more than the noise, the rival is timed again, in turn beside the candidate's process and without it.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from perfsuite.case.comparison import Comparison
from perfsuite.clock.rounds import Round
from perfsuite.isolate.clock import IsolatedClock
from perfsuite.outcome import Reason, Verdict
from perfsuite.verdict.sentence import time_text

SAMPLES, SHORTEST_SECONDS = 15, 2e-5
MARGIN, SPREADS = 0.25, 3.0
"""The rival may be slower beside the candidate by this share, or by so many spreads of its time."""
LEAST_EXCESS_SECONDS = 5e-4
"""Time by which a sample of the rival must be longer beside the candidate. Caches that a candidate's own calls have
emptied cost a sample less; a processor that is busy costs more."""
PAIRS, SAMPLES_OF_A_PAIR = 6, 5
"""Every pair must show the candidate as the cause. A load that comes and goes by itself does so once in 2**PAIRS."""


@dataclass(frozen=True)
class Alone:
    """The rival's seconds a call before the candidate's process started."""

    seconds: float
    launches: int
    """Calls of a sample. Shorter samples are slower by the call."""
    spread: float
    """The distance between the quartiles, as a share of `seconds`."""

    @property
    def most(self) -> float:
        """The most seconds that the noise explains."""
        return self.seconds * (1.0 + max(MARGIN, SPREADS * self.spread))


def alone(clock: IsolatedClock) -> Alone | None:
    """Time the rival by a clock whose candidate is a second process of the rival; None if it is too short to tell."""
    low, middle, high = statistics.quantiles(_of_rival(clock, SAMPLES), n=4)
    # Less than an order to make no call: the machine was busy when that order was timed.
    if low * clock.launches <= SHORTEST_SECONDS:
        return None
    return Alone(middle, clock.launches, (high - low) / middle)


def agreed(found: Comparison, before: Alone, pair: Callable[[], tuple[float, float]]) -> Comparison:
    """`found`, if its rival took as long as before; else WRONG where the candidate is the cause, or UNDECIDED.

    pair: the rival's seconds a call beside the candidate's process, and then with that process ended.
    """
    if not found.rounds or found.rival_seconds is None or found.rival_seconds <= before.most:
        return found
    pairs = [pair()]
    # One pair that speaks for the candidate settles that it is not shown to be the cause.
    while _slowed(pairs[-1:]) and len(pairs) < PAIRS:
        pairs.append(pair())
    beside, without = (statistics.median(side) for side in zip(*pairs, strict=True))
    times = f"{time_text(found.rival_seconds)} a call beside the candidate, {time_text(before.seconds)} before it began"
    excess = (beside - without) * found.launches
    if len(pairs) == PAIRS and _slowed(pairs) and without <= before.most and excess > LEAST_EXCESS_SECONDS:
        said = (
            f"what the candidate leaves behind slows the rival: {times}; timed again {PAIRS} times, "
            f"{time_text(beside)} beside its process and {time_text(without)} without it"
        )
        return replace(found, verdict=Verdict.WRONG, reason=Reason.TAMPERED, sentence=said)
    shorter = found.launches < before.launches and not _slowed(pairs)
    if found.verdict is not Verdict.MET or shorter or _met_anyway(found, before):
        return found
    said = f"the rival took {times}, and it is not known why; so far {found.sentence}"
    return replace(found, verdict=Verdict.UNDECIDED, reason=Reason.RIVAL_SLOWED, sentence=said)


def _met_anyway(found: Comparison, before: Alone) -> bool:
    """True if the target would be met by a rival as fast as before."""
    if found.speed_low is None or found.target is None or found.rival_seconds is None:
        return False
    return found.speed_low * before.seconds / found.rival_seconds >= found.target


def _slowed(pairs: Sequence[tuple[float, float]]) -> bool:
    """True if in all these pairs the rival was slower beside the candidate, by more than MARGIN."""
    return all(beside > (1.0 + MARGIN) * without for beside, without in pairs)


def rival_seconds(clock: IsolatedClock, pause: float = 0.0) -> tuple[float, float]:
    """(the rival's seconds a call in a few rounds of this clock, seconds of the other side's samples).

    pause: a wait before each round. Behind a long sample of a candidate, a rival's calls find their caches cold and
    their processor slow; so they do behind such a pause.
    """
    try:
        clock.setup()
        rounds = [one for _ in range(SAMPLES_OF_A_PAIR) for one in _after(pause, clock)]
        return (
            statistics.median(one.rival_seconds for one in rounds),
            statistics.median(one.candidate_seconds for one in rounds) * clock.launches,
        )
    finally:
        clock.close()


def _after(pause: float, clock: IsolatedClock) -> Sequence[Round]:
    time.sleep(pause)
    return clock.rounds(1)


def _of_rival(clock: IsolatedClock, rounds: int) -> list[float]:
    try:
        clock.setup()
        return [one.rival_seconds for one in clock.rounds(rounds)]
    finally:
        clock.close()
