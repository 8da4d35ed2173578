"""Correctness and tampering checks before, during and after the timing of a case."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from perfsuite.case.ask import Ask
from perfsuite.case.failures import Stop, failures, guarded
from perfsuite.clock.base import Clock
from perfsuite.guards.library_use import shared_kernels, shared_operators
from perfsuite.guards.surroundings import Surroundings, replaced
from perfsuite.oracle import Judgement, check, examine
from perfsuite.oracle.agreement import apart, furthest_allowed, norms_apart, share_of
from perfsuite.oracle.effort import Examined, timed_calls_judged
from perfsuite.outcome import Reason, Verdict
from perfsuite.problems.base import Inputs

TIMED_CALLS_LOOKED_AT = 16
"""Timed calls whose outputs are compared with the library's, besides those that the oracle judges."""

_examined = Examined()


@dataclass(frozen=True)
class Errors:
    """The largest relative errors against the float64 answer so far."""

    candidate: float | None = None
    rival: float | None = None
    limit: float | None = None
    """The largest error allowed for the candidate."""


class Checks:
    """The checks of one case: correctness before and during its timing, and tampering."""

    def __init__(self, ask: Ask) -> None:
        import torch

        self.ask = ask
        self.problem, self.candidate, self.settings = ask.problem, ask.candidate, ask.settings
        self.generator = torch.Generator(device=ask.settings.device).manual_seed(ask.settings.seed)
        self.errors = Errors()
        self.warnings: list[str] = []
        self.seconds = 0.0
        """Host time spent on checks."""

    @contextmanager
    def a_check(self) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds += time.perf_counter() - start

    def _first_call_apart(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """`function`, but the host time of its first call does not count as checking: that call compiles or plans."""
        called = False

        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal called
            first, called, start = not called, True, time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                if first:
                    self.seconds -= time.perf_counter() - start

        return call

    def inputs(self) -> Any:
        return self.problem.inputs(self.generator, distribution=self.settings.distribution)

    def rival(self, library: str | None = None) -> Callable[..., Any]:
        """The function of that library, or of the case's rival."""
        against = library or self.ask.rival
        if against is None:
            said = f"the {self.problem.family} family has no default rival, so name one (against=...)"
            raise Stop(Verdict.UNDECIDED, Reason.NO_RIVAL, f"nothing to compare {self.problem.name} with: {said}")
        return self.problem.rival(against) if isinstance(against, str) else against

    def untouched(self, surroundings: Surroundings) -> None:
        """Stop the case if functions of the judgement were replaced, or if the rival was slowed down."""
        with self.a_check():
            gone, changes = replaced(), surroundings.changes()
        if gone:
            said = f"functions that the judgement rests on are replaced: {', '.join(gone)}"
            raise Stop(Verdict.WRONG, Reason.TAMPERED, said)
        if changes:
            said = f"the candidate changed what both sides share: {', '.join(changes)}"
            raise Stop(Verdict.WRONG, Reason.TAMPERED, said)

    def examined_before(self) -> bool:
        """True if this process has found the candidate right on this problem, against any rival."""
        return _examined.has(self.candidate, self.problem, self.settings.distribution)

    def check(self, library: str | None) -> None:
        """Judge the candidate's answer, and stop the case if it is wrong."""
        with failures(), self.a_check():
            rival = None
            if library or self.ask.rival is not None:
                rival = guarded("rival", self.rival(library))
            judgement = examine(
                self.problem,
                self._first_call_apart(guarded("candidate", self.candidate)),
                self.generator,
                rival=None if rival is None else self._first_call_apart(rival),
                distribution=self.settings.distribution,
            )
        self._judged(judgement)
        if library is None:
            _examined.note(self.candidate, self.problem, self.settings.distribution)

    def _judged(self, judgement: Judgement) -> None:
        before = self.errors
        self.errors = Errors(
            _larger(judgement.candidate_error, before.candidate),
            _larger(judgement.rival_error, before.rival),
            before.limit if judgement.limit is None else judgement.limit,
        )
        if not judgement.ok:
            assert judgement.reason is not None
            raise Stop(Verdict.WRONG, judgement.reason, judgement.sentence)

    def sentence(self) -> str:
        """The sentence of a case that was only checked."""
        error, limit = self.errors.candidate, self.errors.limit
        if self.ask.correctness is False:
            return "neither checked nor timed"
        if error is None or limit is None:
            return "right"
        return f"right: relative error {error:.2g}, at most {limit:.2g} allowed; not timed"

    def check_timed(self, clock: Clock, *, timed: bool) -> None:
        """Judge outputs of timed calls, on inputs made after the capture. timed: True if the rounds gave a speed."""
        allowed: tuple[float | None, float | None] = (None, None)
        inputs: Inputs | None = None
        for call in clock.timed_calls(timed_calls_judged(self.problem)):
            if call.inputs_changed:
                said = "the candidate wrote into its inputs while it was timed"
                raise Stop(Verdict.WRONG, Reason.INPUTS_CHANGED, said)
            judgement = check(
                self.problem,
                call.inputs,
                call.candidate_output,
                call.rival_output,
                rival=self.rival(),
                distribution=self.settings.distribution,
            )
            self._judged(replace(judgement, sentence=f"in a timed call, on new inputs: {judgement.sentence}"))
            allowed, inputs = (judgement.limit, judgement.rival_error), call.inputs
        self._look_at_more(clock, *allowed)
        if timed and clock.kind != "fake" and not callable(self.ask.rival):
            self._look_for_the_rival(clock, inputs)

    def _look_for_the_rival(self, clock: Clock, inputs: Inputs | None) -> None:
        """Warn if the candidate runs the rival's code, or if that cannot be determined."""
        try:
            names = shared_operators(self.candidate, self.rival(), inputs or self.inputs())
            if not names and (launched := clock.kernels()) is not None:
                names = shared_kernels(*launched)
        except Exception as error:  # a call that refuses a dispatch mode, no memory for one more call, a silent driver
            said = f"{type(error).__name__}: {error}".splitlines()[0]
            self.warnings.append(f"whether the candidate runs what {self.ask.rival_name} runs was not seen ({said})")
            return
        if names:
            self.warnings.append(f"the candidate runs what {self.ask.rival_name} runs: {', '.join(names)}")

    def _look_at_more(self, clock: Clock, limit: float | None, rival_error: float | None) -> None:
        """Compare results of more timed calls with the library's: a candidate may skip the work in some calls only."""
        import torch

        if limit is None or rival_error is None:
            return
        sizes: set[int] = set()

        def norms(mine: Any, rivals: Any) -> torch.Tensor | None:
            found = norms_apart(mine, rivals)
            if found is not None:
                sizes.add(rivals.numel())
            return found

        # All are enqueued before the first is waited for.
        enqueued = [found for found in clock.look_at_more(TIMED_CALLS_LOOKED_AT, norms) if found is not None]
        if not enqueued:
            return
        found = [share_of(*pair) for pair in torch.stack(enqueued).tolist()]
        looks = [off for off in found if off is not None]
        if len(looks) < len(found):  # the library's own results are not finite
            looks += clock.look_at_more(TIMED_CALLS_LOOKED_AT, apart)
        allowed = furthest_allowed(limit, rival_error, min(sizes))
        far = [off for off in looks if not off <= allowed]
        if far:
            said = f"{len(far)} of {len(looks)} timed calls gave another result than the library: {max(far):.2g} off"
            raise Stop(Verdict.WRONG, Reason.INACCURATE, said)


def _larger(one: float | None, other: float | None) -> float | None:
    return max((value for value in (one, other) if value is not None), default=None)
