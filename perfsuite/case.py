"""One case, room by room: inputs, oracle, clock, verdict. The order is here; how each works is in its room."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from perfsuite.clock.base import Clock, Sides
from perfsuite.clock.choose import open_clock
from perfsuite.comparison import Comparison, Remeasure
from perfsuite.failures import Stop, failures, guarded, name_of
from perfsuite.oracle.effort import Examined, timed_calls_judged
from perfsuite.oracle.library_use import shared_kernels, shared_operators
from perfsuite.oracle.surroundings import Surroundings, handicaps, replaced
from perfsuite.problems.base import Problem
from perfsuite.settings import Settings
from perfsuite.verdict import sentence as words
from perfsuite.verdict.floor import ceilings_of, floor_of
from perfsuite.verdict.noise import Noise, noise_for
from perfsuite.verdict.outcome import Reason, Verdict
from perfsuite.verdict.policy import regression_target, undecided
from perfsuite.verdict.timing import Timed, Timing

TIMED_CALLS_LOOKED_AT = 16
"""Timed calls whose outputs are held against the library's, besides those that the oracle judges."""

_examined = Examined()

OpenClock = Callable[[Sides, Settings], Clock]


def run_case(
    problem: Problem,
    candidate: Callable[..., Any],
    *,
    against: str | Callable[..., Any] | None,
    correctness: bool | str,
    at_least: float | None,
    settings: Settings,
    remeasure: Remeasure | None = None,
    open_clock: OpenClock = open_clock,
) -> Comparison:
    """See `perfsuite.comparison.compare`; `open_clock` is there for tests."""
    if at_least is not None and not (0.0 < at_least < math.inf):
        raise ValueError(
            f"at_least is {at_least!r}; it must be a positive number, the least share of the rival's speed"
        )
    start = time.perf_counter()
    case = _Case(problem, candidate, against, settings)
    case.target = at_least
    compared = _through(case, correctness, against, open_clock, remeasure)
    return replace(compared, wall_seconds=time.perf_counter() - start, check_seconds=case.checking)


def _through(
    case: _Case,
    correctness: bool | str,
    against: str | Callable[..., Any] | None,
    open_clock: OpenClock,
    remeasure: Remeasure | None,
) -> Comparison:
    surroundings = Surroundings.now()
    case.warnings += [f"the rival is not at its best: {handicap}" for handicap in handicaps()]
    try:
        case.untouched(surroundings)
        timed = against is not None or case.target is not None
        if correctness is not False and not (timed and correctness is True and case.examined_before()):
            case.check(correctness if isinstance(correctness, str) else None)
        case.untouched(surroundings)
        if not timed:
            return case.result(Verdict.MET, Reason.CHECKED, case.checked_sentence(correctness is not False))
        compared = case.time(open_clock, remeasure)
        case.untouched(surroundings)
        return case.told(compared)
    except Stop as stop:
        return case.result(stop.verdict, stop.reason, str(stop))
    except Exception:
        # What a candidate has replaced may fail in the oracle's hands before it is found.
        try:
            case.untouched(surroundings)
        except Stop as stop:
            return case.result(stop.verdict, stop.reason, str(stop))
        raise
    finally:
        surroundings.restore()


class _Case:
    """What is known of the case so far."""

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
        self.checking = 0.0
        """Seconds of the host spent on checks."""

    @contextmanager
    def _a_check(self) -> Iterator[None]:
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
        with self._a_check():
            gone, changes = replaced(), surroundings.changes()
        if gone:
            raise Stop(
                Verdict.WRONG, Reason.TAMPERED, f"functions that the judgement rests on are replaced: {', '.join(gone)}"
            )
        if changes:
            raise Stop(
                Verdict.WRONG, Reason.TAMPERED, f"the candidate changed what both sides share: {', '.join(changes)}"
            )

    def told(self, compared: Comparison) -> Comparison:
        """The comparison, with a word where the candidate is the rival under another name."""
        if callable(self.against) or compared.speed is None or compared.clock == "fake":
            return compared
        try:
            with self._a_check():
                sides = self.candidate, self.rival(self.against), self.inputs()
                names = shared_operators(*sides)
                if not names and compared.clock == "graph":
                    names = shared_kernels(*sides)
        except Exception:  # a call that bears no listener, or no memory for one more: the verdict stands without a note
            return compared
        note = f"the candidate runs what {self.rival_name} runs: {', '.join(names)}"
        return replace(compared, warnings=(*compared.warnings, note)) if names else compared

    # -- oracle ------------------------------------------------------------------------------------------------------

    def examined_before(self) -> bool:
        """Whether this process has found the candidate right at this problem, against whatever rival it was timed.

        Its timed calls are judged by the error of each rival in any case.
        """
        return _examined.has(self.candidate, self.problem, self.settings.distribution)

    def check(self, library: str | None) -> None:
        """Judge the candidate's answer; stops the case where it is wrong."""
        from perfsuite.oracle import examine

        against = library or self.against
        with failures(), self._a_check():
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

    # -- clock and verdict -------------------------------------------------------------------------------------------

    def time(self, open_clock: OpenClock, remeasure: Remeasure | None) -> Comparison:
        """Time both sides and decide."""
        with failures():
            sides = Sides(self.candidate, self.rival(self.against), self.inputs)
            clock = open_clock(sides, self.settings)
            try:
                return self._timed(clock, remeasure)
            finally:
                clock.close()

    def _timed(self, clock: Clock, remeasure: Remeasure | None) -> Comparison:
        settings = self.settings
        self.facts |= {"clock": clock.kind, "clock_note": clock.note}
        timing = Timing(clock, self.target, settings, self._noise, remeasure)
        timed = timing.run()
        self._keep(clock, timed)
        # Before the host's time is measured: the calls for that could make good what the timed ones left out.
        with self._a_check():
            self._check_timed(clock)
        if "candidate_error" not in self.facts and self.examined_before():  # nothing timed was left to be judged
            self.check(None)
        self._host(clock)
        self._floor(clock)
        return self._verdict(timed)

    def _noise(self, seconds: float) -> Noise:
        gpu = None
        if self.settings.device == "cuda":
            import torch

            gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
        noise, warnings = noise_for(
            self.settings.device,
            seconds,
            file=self.settings.calibration,
            gpu=gpu,
            alike=self.target == regression_target(),
        )
        self.warnings += warnings
        return noise

    def _keep(self, clock: Clock, timed: Timed) -> None:
        telemetry = clock.telemetry()
        kept = timed.kept
        facts: dict[str, Any] = {
            "rounds": tuple(kept),
            "discarded": tuple(timed.discarded),
            "telemetry": telemetry,
            "looks": timed.looks,
            "setups": timed.setups,
            "retries": timed.retries,
            "rotation": clock.rotation,
            "launches": clock.launches,
            "gpu_seconds": clock.seconds_spent,
        }
        if timed.estimate is not None:
            facts["speed"] = timed.estimate.speed
            facts["speed_low"], facts["speed_high"] = timed.estimate.low, timed.estimate.high
            asked = 1.0 - 2.0 * self.settings.alpha_a_case
            facts["confidence"] = asked if timed.confidence is None else timed.confidence
        if kept:
            facts["candidate_seconds"] = statistics.median(one.candidate_seconds for one in kept)
            facts["rival_seconds"] = statistics.median(one.rival_seconds for one in kept)
            facts["cycles_speed"] = timed.cycles_speed
        self.facts |= facts
        self.warnings += clock.warnings

    def _host(self, clock: Clock) -> None:
        mine, rivals = clock.host_seconds()
        self.facts |= {"candidate_host_seconds": mine, "rival_host_seconds": rivals}
        seconds = self.facts.get("candidate_seconds")
        if mine is not None and seconds is not None:
            self.facts["bound"] = "host" if mine > seconds else "device"

    def _check_timed(self, clock: Clock) -> None:
        """Judge outputs of calls that were timed, on inputs that were not there when the candidate was captured."""
        from perfsuite.oracle import check

        allowed: tuple[float | None, float | None] = (None, None)
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
            allowed = (judgement.limit, judgement.rival_error)
        self._look_at_more(clock, *allowed)

    def _look_at_more(self, clock: Clock, limit: float | None, rival_error: float | None) -> None:
        """Hold the results of many more timed calls against the library's: work may be left out in some calls only."""
        from torch import Tensor

        from perfsuite.oracle.agreement import apart, furthest_allowed

        def look(mine: Any, rivals: Any) -> tuple[Any, int] | None:
            if not (isinstance(mine, Tensor) and isinstance(rivals, Tensor)):
                return None  # of several results the limits are not known one by one
            return apart(mine, rivals), rivals.numel()

        if limit is None or rival_error is None:
            return
        looks = [found for found in clock.look_at_more(TIMED_CALLS_LOOKED_AT, look) if found is not None]
        far = [off for found, size in looks if not (off := float(found)) <= furthest_allowed(limit, rival_error, size)]
        if far:
            said = (
                f"{len(far)} of {len(looks)} timed calls gave something else than the library gave: {max(far):.2g} off"
            )
            raise Stop(Verdict.WRONG, Reason.INACCURATE, said)

    def _floor(self, clock: Clock) -> None:
        seconds = self.facts.get("candidate_seconds")
        if self.settings.device != "cuda" or clock.kind == "fake" or seconds is None:
            return
        import torch

        floor = floor_of(
            ceilings_of(torch.cuda.current_device()),
            flops=self.problem.flops,
            bytes_moved=self.problem.bytes,
            dtype=str(self.problem.params.get("dtype") or ""),
            cold=self.settings.cache == "cold" and not clock.warnings,
        )
        if floor is not None and seconds < floor.seconds:
            raise Stop(
                Verdict.WRONG,
                Reason.FASTER_THAN_THE_CARD,
                f"{words.time_text(seconds)} a call is less than the card can take: {floor.why} are "
                f"{words.time_text(floor.seconds)}",
            )

    def _verdict(self, timed: Timed) -> Comparison:
        telemetry = self.facts["telemetry"]
        others, allowed = telemetry.other_processes, self.settings.allow_shared
        if timed.verdict is None or timed.estimate is None or (others and not allowed):
            reason = undecided(timed.discarded, timed.kept, others, allowed, timed.contradicted)
            return self.result(Verdict.UNDECIDED, reason, self._undecided_sentence(reason, timed))
        reason = {Verdict.MET: Reason.FAST_ENOUGH, Verdict.MISSED: Reason.TOO_SLOW}[timed.verdict]
        if self.target is None:
            reason = Reason.CHECKED
        return self.result(timed.verdict, reason, self._ratio_sentence(timed))

    def _ratio_sentence(self, timed: Timed) -> str:
        assert timed.estimate is not None
        facts, one = self.facts, timed.estimate
        asked = "" if self.target is None else f", at least {self.target:.3f} asked"
        text = (
            f"{one.speed:.3f} of {self.rival_name} {words.interval_text(one.low, one.high)}{asked}: "
            f"{words.time_text(facts['candidate_seconds'])} against {words.time_text(facts['rival_seconds'])}"
        )
        if timed.confidence is not None:
            text += f"; {len(timed.kept)} rounds only, the interval at {timed.confidence:.0%}"
        if self.settings.device == "cuda":
            text += words.clock_text(facts["telemetry"], timed.cycles_speed, one.speed)
        if facts.get("bound") == "host":
            text += f"; eager calls are bound by the host ({words.time_text(facts['candidate_host_seconds'])} a call)"
        return text

    def _undecided_sentence(self, reason: Reason, timed: Timed) -> str:
        others = self.facts["telemetry"].other_processes
        found = f"; so far {self._ratio_sentence(timed)}" if timed.estimate is not None else ""
        spent = words.time_text(max(self.facts["gpu_seconds"], 1e-9))
        start = {
            Reason.SHARED_DEVICE: f"{others} other process{'es' if others != 1 else ''} on the card",
            Reason.THROTTLED: f"{len(timed.discarded)} of {len(timed.discarded) + len(timed.kept)} rounds were "
            f"discarded ({', '.join(sorted({str(one.discarded) for one in timed.discarded}))})",
            Reason.NO_ROUNDS: "no round was timed",
            Reason.PROCESSES_DISAGREE: "missed here, and not in a fresh process",
            Reason.BUDGET_SPENT: f"not decided in {spent} of {self.settings.seconds:g} s",
        }[reason]
        return start + found

    def result(self, verdict: Verdict, reason: Reason, sentence: str) -> Comparison:
        return Comparison(
            family=self.problem.family,
            name=self.problem.name,
            params=dict(self.problem.params),
            candidate=name_of(self.candidate),
            rival=self.rival_name,
            verdict=verdict,
            reason=reason,
            sentence=sentence,
            target=self.target,
            cache=self.settings.cache,
            distribution=self.settings.distribution,
            seed=self.settings.seed,
            warnings=tuple(dict.fromkeys(self.warnings)),
            **self.facts,
        )
