"""Measures a case for a comparison of builds: the same rounds over the same number of set-ups for every build.

A gate stops as soon as it is sure, so its work depends on the target. A comparison of two builds needs equal work. Many
set-ups of few rounds each are better than the reverse, since set-ups differ by more than rounds do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from perfsuite.case.ask import Ask
    from perfsuite.case.comparison import Comparison
    from perfsuite.clock.base import Clock, Sides
    from perfsuite.clock.rounds import Round
    from perfsuite.settings import Settings

SHORT_SECONDS = 20e-6
ROUNDS_A_SETUP = (2, 5)
"""Rounds before the next set-up, of a call shorter than SHORT_SECONDS and of a longer one. The addresses of buffers
affect short kernels most."""
ROUNDS_A_SETUP_HOST = 10
"""The same on a CPU. A set-up takes as long as many rounds there, and regressions are about ten per cent."""


class ManySetups:
    """A clock that is set up anew after every few rounds; everything else is the given clock's."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._host = clock.kind == "host"
        self._since, self._each = 0, ROUNDS_A_SETUP_HOST if self._host else ROUNDS_A_SETUP[0]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._clock, name)

    def rounds(self, count: int) -> list[Round]:
        found: list[Round] = []
        while len(found) < count:
            if self._since == self._each:
                self._clock.setup()
                self._since = 0
            some = self._clock.rounds(min(count - len(found), self._each - self._since))
            self._since += len(some)
            found += some
            if not self._host and min(min(one.candidate_seconds, one.rival_seconds) for one in some) >= SHORT_SECONDS:
                self._each = ROUNDS_A_SETUP[1]
        return found


def measure(ask: Ask, open_clock: Callable[[Sides, Settings], Clock] | None = None) -> Comparison:
    """Check and time a case by a plan that does not depend on the results. Compare with the target afterwards.

    `open_clock` replaces `perfsuite.clock.choose.open_clock` in tests.
    """
    from perfsuite.case.run import run_case
    from perfsuite.clock import choose
    from perfsuite.outcome import Reason, Verdict

    opened, at_least = open_clock or choose.open_clock, ask.at_least
    made = run_case(
        replace(ask, against=ask.rival, at_least=None, remeasure=None),
        open_clock=lambda sides, given: cast("Clock", ManySetups(opened(sides, given))),
    )
    made = replace(made, target=at_least, setups=len({one.setup for one in made.rounds}) or made.setups)
    if at_least is None or made.verdict is not Verdict.MET or made.speed_low is None or made.speed_high is None:
        return made
    verdict, reason = Verdict.UNDECIDED, Reason.BUDGET_SPENT
    if made.speed_low >= at_least:
        verdict, reason = Verdict.MET, Reason.FAST_ENOUGH
    elif made.speed_high < at_least:
        verdict, reason = Verdict.MISSED, Reason.TOO_SLOW
    return replace(made, verdict=verdict, reason=reason, sentence=f"{made.sentence}; at least {at_least:.3f} asked")
