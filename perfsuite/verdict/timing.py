"""Times a case until the sequential test decides or the budget is spent."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from perfsuite.clock.base import Clock
from perfsuite.clock.rounds import Round
from perfsuite.outcome import Verdict
from perfsuite.settings import Settings
from perfsuite.verdict.interval import rounds_needed
from perfsuite.verdict.noise import Noise
from perfsuite.verdict.policy import GROSS_ROUNDS, gross, is_near, is_suspect
from perfsuite.verdict.sequential import Estimate, SequentialTest, estimate, spent_at

FIRST_ROUNDS = 20
"""Rounds of the first look. A smaller error needs more rounds for an interval."""
FIRST_SECONDS = 0.06
"""Device time of the first look. It takes fewer of longer rounds, but enough for an interval."""
LATER_ROUNDS = 10
"""Rounds that each later set-up adds."""
LATER_SECONDS = 0.03
"""Device time of a later set-up's rounds. It takes fewer of longer rounds."""
FEWEST_LATER_ROUNDS = 2
LONG_CALL_SECONDS, LONG_BUDGETS = 15e-3, 2.0
"""Rounds of longer calls may take so many times the budget of the settings."""
BATCH_SECONDS, LONG_BATCH_SECONDS = 0.02, 0.2
"""Device time that is enqueued at once, and that of rounds of one half. NVML is read once a batch, while the card
idles: a call behind that may be faster, under a power limit."""
BATCH_ROUNDS = 20


@dataclass
class Timed:
    """The result of all rounds. `verdict` is None for an undecided case."""

    verdict: Verdict | None = None
    estimate: Estimate | None = None
    kept: list[Round] = field(default_factory=list)
    discarded: list[Round] = field(default_factory=list)
    looks: int = 0
    setups: int = 0
    retries: int = 0
    contradicted: bool = False
    """True if a fresh process did not confirm a miss."""
    cycles_speed: float | None = None
    confidence: float | None = None
    """Confidence of the interval, if the rounds were too few for the level of the settings."""


class Timing:
    """Runs one case on a clock that has been set up once.

    noise_of: seconds a call -> noise. remeasure: measures a suspect in a fresh process and returns its rounds.
    """

    def __init__(
        self,
        clock: Clock,
        target: float | None,
        settings: Settings,
        noise_of: Callable[[float], Noise],
        remeasure: Callable[[], Sequence[Round]] | None = None,
    ) -> None:
        self.clock, self.target, self.settings = clock, target, settings
        self.noise_of, self.remeasure = noise_of, remeasure
        self.alpha = settings.alpha_a_case
        self.processes = 1
        self._rounds = 0
        self._seconds_of_rounds = 0.0
        self.timed = Timed(setups=1)

    def run(self) -> Timed:
        """Time until a verdict; without a target, only for the first look."""
        timed = self.timed
        needed = rounds_needed(spent_at(1, self.alpha))
        self._collect(1)
        self._collect(min(needed, GROSS_ROUNDS) - 1)
        if self._round_seconds() * (needed - GROSS_ROUNDS) > self._left():
            return self._finish_early()
        wanted = max(needed, min(FIRST_ROUNDS, self._rounds_in(min(FIRST_SECONDS, self._left()))))
        self._collect(wanted - self._rounds)
        # Discarded rounds are measured again. A clock that gives no rounds at all is not asked again.
        while timed.discarded and len(timed.kept) < wanted:
            if self._round_seconds() * (wanted - len(timed.kept)) >= self._left():
                break
            self._collect(wanted - len(timed.kept))
        if len(timed.kept) < needed:
            return self._finish_early()
        test = SequentialTest(
            self.target or 1.0, self.alpha, self.noise_of(self._call_seconds()), crossed=self._crossed
        )
        verdict = self._look(test)
        if self.target is None:
            timed.verdict = Verdict.MET
            return self._finish()
        while True:
            if verdict is Verdict.MISSED and timed.estimate is not None and is_suspect(timed.estimate, self.target):
                verdict = self._again(test, self.target)
            if verdict is not None:
                timed.verdict = verdict
                return self._finish()
            if timed.contradicted or not self._grow(next_look(timed.setups)):
                return self._finish()
            verdict = self._look(test)

    def _again(self, test: SequentialTest, target: float) -> Verdict | None:
        """Set a suspect up afresh before it fails; None if it stays undecided or the budget ends."""
        verdict: Verdict | None = Verdict.MISSED
        before, enough = self.timed.setups, 1 + self.settings.remeasure
        if before < enough:
            self._grow(enough)
            self.timed.retries += self.timed.setups - before
            if self.timed.setups < enough:
                return None
            verdict = self._look(test)
        near = self.timed.estimate is not None and is_near(self.timed.estimate, target)
        if verdict is Verdict.MISSED and near and self.remeasure is not None and self.processes == 1:
            return self._elsewhere(test, target, self.remeasure)
        return verdict

    def _elsewhere(
        self, test: SequentialTest, target: float, remeasure: Callable[[], Sequence[Round]]
    ) -> Verdict | None:
        """Measure in a fresh process. Its median must miss the target too; None if it does not."""
        rounds = [one for one in remeasure() if one.discarded is None]
        if not rounds:
            return Verdict.MISSED
        self.processes += 1
        self.timed.retries += 1
        self.timed.kept += [replace(one, setup=one.setup + self.timed.setups) for one in rounds]
        self.timed.setups += 1 + max(one.setup for one in rounds)
        self.timed.contradicted = statistics.median(one.speed for one in rounds) >= target
        verdict = self._look(test)
        return None if self.timed.contradicted else verdict

    def _look(self, test: SequentialTest) -> Verdict | None:
        verdict = test.look(self.timed.kept, self.processes)
        self.timed.estimate, self.timed.looks = test.last, test.looks
        return verdict

    def _grow(self, setups: int) -> bool:
        """Add set-ups up to `setups` in all; False if the budget is too small for one more."""
        before = self.timed.setups
        while self.timed.setups < setups and self._new_setup():
            pass
        return self.timed.setups > before

    def _new_setup(self) -> bool:
        """Add a set-up with its rounds; False, and no change, if the budget is too small."""
        seconds = min(LATER_SECONDS, self._left())
        count = max(FEWEST_LATER_ROUNDS, min(LATER_ROUNDS, self._rounds_in(seconds)))
        if self._round_seconds() * count > self._left():
            return False
        self.clock.setup()
        self.timed.setups += 1
        self._collect(count)
        return True

    def _collect(self, count: int) -> None:
        while count > 0:
            batch = BATCH_ROUNDS
            if self._seconds_of_rounds > 0.0:
                seconds = BATCH_SECONDS if self.clock.halves > 1 else LONG_BATCH_SECONDS
                batch = max(1, min(batch, int(seconds / self._round_seconds())))
            batch = min(batch, count)
            before = self.clock.seconds_spent
            for one in self.clock.rounds(batch):
                (self.timed.kept if one.discarded is None else self.timed.discarded).append(one)
            self._seconds_of_rounds += self.clock.seconds_spent - before
            self._rounds += batch
            count -= batch

    def _finish_early(self) -> Timed:
        """Decide only obvious cases. Too few rounds allow only an interval of lower confidence than the settings'."""
        kept = self.timed.kept
        if kept:
            self.timed.estimate = Estimate(statistics.median(one.speed for one in kept), 0.0, math.inf)
            if len(kept) >= GROSS_ROUNDS:
                alpha = 2.0 ** -len(kept)
                noise = self.noise_of(self._call_seconds())
                self.timed.estimate = estimate(kept, alpha, noise, crossed=self._crossed)
                self.timed.confidence = 1.0 - 2.0 * alpha
            if self.target is None:
                self.timed.verdict = Verdict.MET
            else:
                self.timed.verdict = gross(kept, self.target)
                self.timed.looks += 1
        return self._finish()

    def _finish(self) -> Timed:
        self.timed.cycles_speed = cycles_speed(self.timed.kept)
        return self.timed

    @property
    def _crossed(self) -> bool:
        return self.clock.halves == 1

    def _round_seconds(self) -> float:
        return self._seconds_of_rounds / self._rounds if self._rounds else 0.0

    def _rounds_in(self, seconds: float) -> int:
        return int(seconds / self._round_seconds()) if self._seconds_of_rounds > 0.0 else FIRST_ROUNDS

    def _call_seconds(self) -> float:
        return statistics.median(min(one.candidate_seconds, one.rival_seconds) for one in self.timed.kept)

    def _left(self) -> float:
        """Seconds of the budget that are left. Rounds are charged to it, set-ups and warm-ups are not."""
        seconds = self.settings.seconds
        if self._round_seconds() > 2 * self.clock.halves * LONG_CALL_SECONDS:
            seconds *= LONG_BUDGETS
        return seconds - self._seconds_of_rounds


def next_look(setups: int) -> int:
    """The number of set-ups of the next look. Looks grow further apart, since each of them spends error."""
    return max(setups + 1, round(1.35 * setups))


def cycles_speed(rounds: Sequence[Round]) -> float | None:
    """The median ratio in SM cycles, over rounds with a known clock; None without one.

    Both sides of a round run within a millisecond or two, at one clock: the ratio of cycles is that of seconds.
    """
    known = [one.speed for one in rounds if one.sm_clock_hz is not None]
    return statistics.median(known) if known else None
