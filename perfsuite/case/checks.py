"""What the oracle is asked of a case: before it is timed, of calls that were timed, of what both sides share."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from perfsuite.case.failures import Stop, failures, guarded, name_of
from perfsuite.clock.base import Clock
from perfsuite.guards.library_use import shared_kernels, shared_operators
from perfsuite.guards.surroundings import Surroundings, replaced
from perfsuite.oracle.effort import Examined, timed_calls_judged
from perfsuite.outcome import Reason, Verdict
from perfsuite.problems.base import Inputs, Problem
from perfsuite.settings import Settings

TIMED_CALLS_LOOKED_AT = 16
"""Timed calls whose outputs are held against the library's, besides those that the oracle judges."""

_examined = Examined()


class CaseChecks:
    """A case, and the checks that are made of it before, in and after its timing."""

    def __init__(
        self,
        problem: Problem,
        candidate: Callable[..., Any],
        against: str | Callable[..., Any] | None,
        settings: Settings,
    ) -> None:
        import torch

        self.problem, self.candidate, self.settings = problem, candidate, settings
        self.target: float | None = None
        self.against = against if against is not None else problem.default_rival
        self.rival_name = name_of(self.against) if self.against is not None else None
        self.generator = torch.Generator(device=settings.device).manual_seed(settings.seed)
        self.facts: dict[str, Any] = {}
        self.warnings: list[str] = []
        self.examined = False
        """Whether it is taken as right until its timed calls are judged: this process has examined it before."""
        self.checking = 0.0
        """Seconds of the host spent on checks."""

    @contextmanager
    def a_check(self) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self.checking += time.perf_counter() - start

    def _first_call_apart(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """`function`, the host's time of whose first call is no check: it compiles or plans, and comes once anyway."""
        called = False

        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal called
            if called:
                return function(*args, **kwargs)
            called, start = True, time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                self.checking -= time.perf_counter() - start

        return call

    def inputs(self) -> Any:
        return self.problem.inputs(self.generator, distribution=self.settings.distribution)

    def rival(self, against: str | Callable[..., Any] | None) -> Callable[..., Any]:
        if against is None:
            raise Stop(
                Verdict.UNDECIDED,
                Reason.NO_RIVAL,
                f"nothing to compare {self.problem.name} with: the {self.problem.family} family has no rival of its "
                "own, so name one (against=...)",
            )
        return self.problem.rival(against) if isinstance(against, str) else against

    def untouched(self, surroundings: Surroundings) -> None:
        """Stop the case where something replaced what it is judged by, or set the rival back."""
        with self.a_check():
            gone, changes = replaced(), surroundings.changes()
        if gone:
            raise Stop(
                Verdict.WRONG, Reason.TAMPERED, f"functions that the judgement rests on are replaced: {', '.join(gone)}"
            )
        if changes:
            raise Stop(
                Verdict.WRONG, Reason.TAMPERED, f"the candidate changed what both sides share: {', '.join(changes)}"
            )

    def examined_before(self) -> bool:
        """Whether this process has found the candidate right at this problem, against whatever rival it was timed.

        Its timed calls are judged by the error of each rival in any case.
        """
        return _examined.has(self.candidate, self.problem, self.settings.distribution)

    def check(self, library: str | None) -> None:
        """Judge the candidate's answer; stops the case where it is wrong."""
        from perfsuite.oracle import examine

        against = library or self.against
        with failures(), self.a_check():
            rival = None if against is None else guarded("rival", self.rival(against))
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

    def _judged(self, judgement: Any) -> None:
        for field in ("candidate_error", "rival_error"):
            value = getattr(judgement, field)
            if value is not None:
                self.facts[field] = max(value, self.facts.get(field) or 0.0)
        if judgement.limit is not None:
            self.facts["error_limit"] = judgement.limit
        if not judgement.ok:
            raise Stop(Verdict.WRONG, judgement.reason, judgement.sentence)

    def checked_sentence(self, checked: bool) -> str:
        error, limit = self.facts.get("candidate_error"), self.facts.get("error_limit")
        if not checked:
            return "neither checked nor timed"
        if error is None or limit is None:
            return "right"
        return f"right: relative error {error:.2g}, at most {limit:.2g} allowed; not timed"

    def check_timed(self, clock: Clock) -> None:
        """Judge outputs of calls that were timed, on inputs that were not there when the candidate was captured."""
        from perfsuite.oracle import check

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
                rival=self.rival(self.against),
                distribution=self.settings.distribution,
            )
            self._judged(
                judgement
                if judgement.ok
                else replace(judgement, sentence=f"in a timed call, on new inputs: {judgement.sentence}")
            )
            allowed, inputs = (judgement.limit, judgement.rival_error), call.inputs
        self._look_at_more(clock, *allowed)
        self._look_for_the_rival(clock, inputs)

    def _look_for_the_rival(self, clock: Clock, inputs: Inputs | None) -> None:
        """Say so where the candidate is the rival under another name, or where that could not be seen."""
        if callable(self.against) or clock.kind == "fake" or "speed" not in self.facts:
            return
        try:
            names = shared_operators(self.candidate, self.rival(self.against), inputs or self.inputs())
            if not names and (launched := clock.kernels()) is not None:
                names = shared_kernels(*launched)
        except Exception as error:  # a call that bears no listener, no memory for one more, a driver that does not say
            said = f"{type(error).__name__}: {error}".splitlines()[0]
            self.warnings.append(f"whether the candidate runs what {self.rival_name} runs was not seen ({said})")
            return
        if names:
            self.warnings.append(f"the candidate runs what {self.rival_name} runs: {', '.join(names)}")

    def _look_at_more(self, clock: Clock, limit: float | None, rival_error: float | None) -> None:
        """Hold the results of many more timed calls against the library's: work may be left out in some calls only."""
        import torch

        from perfsuite.oracle.agreement import apart, furthest_allowed, norms_apart, share_of

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
            said = (
                f"{len(far)} of {len(looks)} timed calls gave something else than the library gave: {max(far):.2g} off"
            )
            raise Stop(Verdict.WRONG, Reason.INACCURATE, said)
