"""Correctness and tampering checks before, during and after the timing of a case."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any

from perfsuite.case import beside
from perfsuite.case.ask import Ask
from perfsuite.case.failures import Stop, described, failures, fits, guarded, remedy, replaced, shown
from perfsuite.case.module_state import RESTORED, reset_of_buffers
from perfsuite.case.timed_inputs import judged_call, timed_inputs
from perfsuite.case.writing import Effects, effects_of
from perfsuite.clock.base import Clock, SideFailedError, Sides, TimedCall
from perfsuite.clock.garbage import collect_young
from perfsuite.clock.room import MOST_KEPT_CALLS
from perfsuite.device import turns
from perfsuite.guards.first_use import settle
from perfsuite.guards.ground import Look
from perfsuite.guards.recompiles import compiling
from perfsuite.guards.watch import Watch
from perfsuite.oracle import Judgement, examine
from perfsuite.oracle.agreement import apart, furthest_allowed, norms_apart, share_of
from perfsuite.oracle.effort import Examined, timed_calls_judged
from perfsuite.outcome import Reason, UnjudgeableError, Verdict
from perfsuite.problems import Custom
from perfsuite.problems.base import Inputs, RivalUnavailableError
from perfsuite.problems.differentiated import needs_preparing
from perfsuite.problems.modules import drawn_anew, module_of, unlike

TIMED_CALLS_LOOKED_AT = 16
"""Timed calls whose outputs are compared with the library's, besides those that the oracle judges."""
_examined = Examined()


@dataclass(frozen=True)
class Errors:
    """The largest relative errors against the float64 answer so far, on inputs of the case's own distribution."""

    candidate: float | None = None
    rival: float | None = None
    limit: float | None = None
    """The largest error allowed for the candidate in any of these draws."""


class Checks:
    """The checks of one case: correctness before and during its timing, and tampering."""

    def __init__(self, ask: Ask, look: Look) -> None:
        self.ask = ask
        self.problem, self.candidate, self.settings = ask.problem, ask.candidate, ask.settings
        settle(ask.settings.device)
        self.generator = ask.settings.generator()
        self.errors = Errors()
        self._effects: Effects | None = None
        with_it = (getattr(self.problem, name, None) for name in ("reference", "against"))
        objects = (one for one in (ask.rival, *with_it) if callable(one))
        self.watch = Watch(look, self.problem, *objects, library=isinstance(ask.rival, str), device=ask.settings.device)
        self._hard: Mapping[str, bool | None] = {}
        """Hard inputs of the examination, and whether the rival is right on them; None if nobody asked."""
        self.warnings: list[str] = []
        self.rival_differs: list[str] = []
        """Sentences about strides of results, and settings of precision, that differ between the sides."""
        self.seconds = 0.0
        """Host time spent on checks."""
        self._checks = False
        """True within a check."""
        self.first_seconds: float | None = None
        """Host time of the candidate's first call; None if it has not been seen."""

    @contextmanager
    def a_check(self) -> Iterator[None]:
        """The block is a check, or a part of one, which counts once."""
        start, part, self._checks = time.perf_counter(), self._checks, True
        try:
            yield
        finally:
            self._checks = part
            self.seconds += 0.0 if part else time.perf_counter() - start

    def _first_call_apart(self, function: Callable[..., Any], *, candidates: bool = False) -> Callable[..., Any]:
        """`function`, but the host time of its first call does not count as checking: that call compiles or plans.

        candidates: the function is the candidate, and the record gets that time.
        """
        called = False

        @wraps(function, updated=())
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal called
            if candidates:
                self._let_others_time()
            first, called, start = not called, True, time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                collect_young()  # a call may leave its tensors in a cycle
                if first:
                    spent = time.perf_counter() - start
                    self.seconds -= spent
                    if candidates and self.first_seconds is None:
                        self.first_seconds = spent

        return call

    def _let_others_time(self) -> None:
        """Let those who wait for the card have it, where several processes share it. A wait is no check."""
        start = time.perf_counter()
        turns.pause()
        self.seconds -= time.perf_counter() - start

    def inputs(self) -> Any:
        return self.problem.inputs(self.generator, distribution=self.settings.distribution)

    @property
    def effects(self) -> Effects:
        """The arguments that calls write, and the state before them; found when it is first asked for."""
        if self._effects is None:
            known = self.ask.rival is not None and isinstance(self.problem, Custom)
            with failures(), self.a_check():
                rival = self._first_call_apart(self.rival()) if known else None
                reset = (
                    None if rival is None else reset_of_buffers(self.candidate, self.rival(), self.problem, self.inputs)
                )
                self.warnings += [RESTORED] if reset else []
                self._effects = effects_of(self.problem, rival, self.generator, reset)
        return self._effects

    def sides(self) -> Sides:
        """Both sides as the clock times them, with hard inputs where the case is small enough to be judged on them."""
        problem, effects = self.problem, self.effects
        with failures(), self.a_check():
            given = self.generator, self.settings, self._hard, effects.problem(problem)
            between = timed_inputs(problem, effects.pure(self.rival()), *given)
        self.warnings += between.warnings
        return Sides(
            self.candidate,
            self.rival(),
            self.inputs,
            moves="elements" if problem.exchangeable else "sets",
            integers=between.integers,
            hard=between.hard,
            written=self.effects.written,
            reset=self.effects.reset,
            calls_per_reset=self.effects.calls_per_reset,
            watch=self.watch,
        )

    def rival(self, library: str | None = None) -> Callable[..., Any]:
        """The function of that library, or of the case's rival."""
        against = library or self.ask.rival
        if against is None:
            said = f"the {self.problem.family} family has no default rival, so name one (against=...)"
            raise Stop(Verdict.UNDECIDED, Reason.NO_RIVAL, f"nothing to compare {self.problem.name} with: {said}")
        return self.problem.rival(against) if isinstance(against, str) else self.problem.called(against)

    def untouched(self) -> None:
        """Stop the case if functions of the judgement were replaced, or if the rival was slowed down."""
        with self.a_check():
            self.watch.names()
            self.watch.after("case")
        if self.watch.replaced:
            raise replaced(self.watch.replaced)
        if self.watch.changed:
            said = f"the candidate changed what both sides share: {shown(self.watch.changed)}"
            raise Stop(Verdict.WRONG, Reason.TAMPERED, said)

    def examined_before(self) -> bool:
        """True if this process has found the candidate right on this problem, on the same terms, beside any rival."""
        return _examined.has(self.candidate, self.problem, self.ask.terms)

    def check(self) -> None:
        """Judge the candidate's answer, and stop the case if it is wrong."""
        with failures(), self.a_check():
            measure = self.ask.library or self.problem.yardstick
            rival = self.rival(measure) if measure or self.ask.rival is not None else None
            judgement = compiling(lambda: self._examined(rival), self.warnings)
            if judgement.ok and rival is not None:
                judgement = self._with_other_parameters(rival, judgement)
        self._judged(judgement)
        self._hard = {} if measure else judgement.hard
        if judgement.left_out:
            self.warnings.append(f"there was no time to check these hard inputs: {', '.join(judgement.left_out)}")
        self.warnings += [judgement.note] if judgement.note else []
        _examined.note(self.candidate, self.problem, self.ask.terms)

    def _examined(self, rival: Callable[..., Any] | None, *, adversarial: bool = True) -> Judgement:
        pure = self.effects.pure
        guard = None if rival is None else guarded("rival", pure(rival))
        try:
            return examine(
                self.effects.problem(self.problem),
                self._first_call_apart(self.watch.around(guarded("candidate", pure(self.candidate))), candidates=True),
                self.generator,
                rival=None if guard is None else self._first_call_apart(guard),
                distribution=self.settings.distribution,
                deterministic=self.ask.deterministic,
                adversarial=adversarial,
                held_out=adversarial and self.ask.other_sizes,
            )
        except SideFailedError as error:
            self._require_a_rival_that_runs(error, guard)
            raise

    def _with_other_parameters(self, rival: Callable[..., Any], before: Judgement) -> Judgement:
        """The judgement of two modules of one state with other parameters; `before`, if they are no such modules."""
        mine, theirs = module_of(self.candidate), module_of(rival)
        if mine is None or theirs is None or not theirs.state_dict():
            return before
        if keys := unlike(mine, theirs):
            shown = ", ".join(keys[:4]) + (f" and {len(keys) - 4} more" if len(keys) > 4 else "")
            self.warnings.append(f"the given parameters alone were checked: the sides differ in {shown}")
            return before
        with drawn_anew(mine, theirs, self.generator):
            found = self._examined(rival, adversarial=False)
        if found.ok:
            return before
        return replace(found, sentence=f"with other parameters than the given ones: {found.sentence}")

    def _require_a_rival_that_runs(self, failure: SideFailedError, rival: Callable[..., Any] | None) -> None:
        """Raise UnjudgeableError if the rival fails too where the candidate did: then the call does not fit."""
        import torch

        stopped = (torch.OutOfMemoryError, torch.AcceleratorError)
        if failure.side == "candidate" and rival is not None and isinstance(failure.cause, torch.OutOfMemoryError):
            self._blame_for_memory(failure, rival)
        started = getattr(failure.cause, "reason", None) is not Reason.NOT_STARTED
        if failure.side != "candidate" or rival is None or not started or isinstance(failure.cause, stopped):
            return
        generator = self.settings.generator()
        try:
            with torch.no_grad():
                self.problem.inputs(generator, distribution=self.settings.distribution).call(rival)
        except SideFailedError as error:
            if isinstance(error.cause, (*stopped, RivalUnavailableError)):
                return
            raise UnjudgeableError(
                f"both sides raise on these arguments: the candidate {described(failure.cause)}; the rival "
                f"{described(error.cause)}; {remedy(failure.cause)}"
            ) from failure.cause

    def _blame_for_memory(self, failure: SideFailedError, rival: Callable[..., Any]) -> None:
        """Stop the case if the candidate alone runs out of memory where its rival does not."""
        if turns.in_process():  # the others' memory comes and goes
            return
        candidate = guarded("candidate", self.effects.pure(self.candidate))
        if fits(self.problem, self.settings, rival) and not fits(self.problem, self.settings, candidate):
            said = f"the candidate ran out of memory where its rival runs: {described(failure.cause)}"
            raise Stop(Verdict.WRONG, Reason.CANDIDATE_FAILED, said, error=failure.cause)

    def _judged(self, judgement: Judgement, *, own_distribution: bool = True) -> None:
        if own_distribution or not judgement.ok:
            before = self.errors
            self.errors = Errors(
                _larger(judgement.candidate_error, before.candidate),
                _larger(judgement.rival_error, before.rival),
                _larger(judgement.limit, before.limit),
            )
        if not judgement.ok:
            assert judgement.reason is not None
            unknown = judgement.reason is Reason.REFERENCE_IMPRECISE
            raise Stop(Verdict.UNDECIDED if unknown else Verdict.WRONG, judgement.reason, judgement.sentence)

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
        problem, rival = self.effects.problem(self.problem), self.effects.pure(self.rival(self.problem.yardstick))
        anew = self.problem.yardstick is not None

        def judged(call: TimedCall) -> Judgement | None:
            return judged_call(problem, call, rival, self.settings.distribution, anew=anew, right=inputs is not None)

        for call in clock.timed_calls(timed_calls_judged(self.problem)):
            self._let_others_time()
            if call.inputs_changed:
                said = "the candidate wrote into its inputs while it was timed"
                raise Stop(Verdict.WRONG, Reason.INPUTS_CHANGED, said)
            judgement = judged(call)
            if judgement is None:
                continue
            which = f"on inputs of the distribution {call.distribution}" if call.distribution else "on new inputs"
            told = replace(judgement, sentence=f"in a timed call, {which}: {judgement.sentence}")
            self._judged(told, own_distribution=call.distribution is None)
            if call.distribution is None:
                allowed, inputs = (judgement.limit, judgement.rival_error), call.inputs
        self._look_at_more(clock, judged, *allowed)
        if timed and clock.kind != "fake":
            self._look_at_the_rival(clock, inputs)

    def _look_at_the_rival(self, clock: Clock, inputs: Inputs | None) -> None:
        """Note what sets the rival apart, and warn if the candidate runs the code of a rival that a name stands for."""
        mine, theirs = self.effects.pure(self.candidate), self.effects.pure(self.rival())
        seen = beside.both(mine, theirs, inputs or self.inputs())
        self.rival_differs = [] if needs_preparing(mine) else beside.differences(seen)
        if not callable(self.ask.rival):
            self.warnings += beside.code_of_both(seen, clock, self.ask.rival_name)

    def _look_at_more(self, clock: Clock, judge: Callable[[TimedCall], Judgement | None], *known: float | None) -> None:
        """Compare more timed calls with the library's, since a candidate may skip some; `judge` tells which is off.

        known: the limit of a judged call, and the rival's error in it.
        """
        import torch

        limit, rival_error = known
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
        if not far:
            return
        said = f"{len(far)} of {len(looks)} timed calls gave another result than the library: {max(far):.2g} off"
        for call in clock.timed_calls(MOST_KEPT_CALLS):
            judgement = judge(call) if call.distribution is None else None
            if judgement is not None and not judgement.ok:
                self._judged(replace(judgement, sentence=f"{said}; {judgement.sentence}"), own_distribution=False)


def _larger(one: float | None, other: float | None) -> float | None:
    return max((value for value in (one, other) if value is not None), default=None)
