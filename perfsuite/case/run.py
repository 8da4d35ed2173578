"""Runs one case: inputs, check, timing, check of the timed calls, verdict."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from perfsuite.case.ask import Ask
from perfsuite.case.checks import Checks
from perfsuite.case.comparison import Comparison, unmeasured
from perfsuite.case.failures import Stop, broken_context, failures, frames_of, replaced
from perfsuite.clock.base import Clock, Sides
from perfsuite.clock.choose import open_clock
from perfsuite.clock.garbage import no_full_collection
from perfsuite.clock.processor import busy, pinned_threads
from perfsuite.guards.ground import Look, looker
from perfsuite.guards.surroundings import handicaps
from perfsuite.outcome import Reason, Verdict
from perfsuite.problems.base import Problem
from perfsuite.settings import Settings
from perfsuite.verdict import sentence as words
from perfsuite.verdict.floor import ceilings_of, floor_of
from perfsuite.verdict.noise import Noise, noise_for
from perfsuite.verdict.policy import is_regression_target, undecided
from perfsuite.verdict.timing import Timed, Timing

OpenClock = Callable[[Sides, Settings], Clock]


def compare(
    problem: Problem,
    candidate: Callable[..., Any],
    *,
    against: str | Callable[..., Any] | None = None,
    correctness: bool | str = True,
    deterministic: bool = True,
    at_least: float | None = None,
    settings: Settings,
) -> Comparison:
    """Check `candidate` on `problem`, and time it if `against` or `at_least` is given.

    `Ask` describes the arguments. Exceptions of candidate and rival become verdicts. Raises ValueError for an unknown
    rival or a bad `at_least`, and ReferenceUnavailableError if a custom problem cannot be checked.
    """
    return run_case(
        Ask(
            problem,
            problem.called(candidate),
            against=against,
            correctness=correctness,
            deterministic=deterministic,
            at_least=at_least,
            settings=settings,
        )
    )


def run_case(ask: Ask, *, open_clock: OpenClock = open_clock) -> Comparison:
    """Check and time one case; `open_clock` makes the clock over both sides."""
    import torch

    start = time.perf_counter()
    if (broken := broken_context(ask.settings.device)) is not None:
        said = f"the card's context in this process was broken by an earlier case: {broken}"
        return unmeasured(ask, Verdict.UNDECIDED, Reason.DEVICE_LOST, said)
    look = looker()
    # Before anything looks at the settings that both sides share. Timed calls run without gradients, as checked ones.
    with torch.no_grad(), pinned_threads(ask.settings.device), no_full_collection():
        case = _Case(ask, look)
        gone: list[str] = []
        try:
            compared = _through(case, open_clock)
        except Exception:
            if not (gone := look()):
                raise
        # Behind all that a candidate may have replaced, the methods that look for replacements included.
        if gone := gone or look():
            compared = case.stopped(replaced(gone))
    return replace(compared, wall_seconds=time.perf_counter() - start, check_seconds=case.checks.seconds)


def _through(case: _Case, open_clock: OpenClock) -> Comparison:
    ask, checks = case.ask, case.checks
    case.warnings += [f"the rival is not at its best: {handicap}" for handicap in handicaps()]
    try:
        checks.untouched()
        # A candidate that was examined before counts as right until its timed calls are judged.
        examined = ask.timed and ask.correctness is not False and (ask.examined or checks.examined_before())
        if ask.correctness is not False and not examined:
            checks.check()
            checks.untouched()
        if not ask.timed:
            return case.result(Verdict.MET, Reason.CHECKED, checks.sentence())
        compared = case.time(open_clock, examined)
        checks.untouched()
        return compared
    except Stop as stop:
        return case.stopped(_cause(stop, checks))
    except Exception:
        # Objects that a candidate has replaced may fail inside the oracle before the replacement is found.
        try:
            checks.untouched()
        except Stop as stop:
            return case.stopped(stop)
        raise
    finally:
        checks.watch.end()


def _cause(stop: Stop, checks: Checks) -> Stop:
    """Tampering, if there was any: a replaced function may make the rival fail, or its answer wrong."""
    if stop.reason is not Reason.TAMPERED:
        try:
            checks.untouched()
        except Stop as tampered:
            return tampered
    return stop


class _Case:
    """A case that is being run; `found` is its comparison so far."""

    def __init__(self, ask: Ask, look: Look) -> None:
        self.ask, self.checks, self.settings = ask, Checks(ask, look), ask.settings
        self.warnings: list[str] = []
        self.found = unmeasured(ask, Verdict.UNDECIDED, Reason.NO_ROUNDS, "")

    def time(self, open_clock: OpenClock, examined: bool) -> Comparison:
        with failures():
            clock = open_clock(self.checks.sides(), self.settings)
            try:
                return self._timed(clock, examined)
            finally:
                clock.close()

    def _timed(self, clock: Clock, examined: bool) -> Comparison:
        self.found = replace(self.found, clock=clock.kind, clock_note=clock.note)
        timed = Timing(clock, self.ask.at_least, self.settings, self._noise, self.ask.remeasure).run()
        self._keep(clock, timed)
        if self.ask.examined and timed.verdict is Verdict.MISSED:
            # These rounds confirm another process's miss, and speak for no candidate: wrong answers gain nothing here.
            return self._verdict(timed)
        # Before the host's time is measured: those calls could do the work that the timed ones left out.
        with self.checks.a_check():
            self.checks.check_timed(clock, timed=timed.estimate is not None)
        if self.checks.errors.candidate is None and examined:  # no timed call could be judged
            self.checks.check()
        self._host(clock)
        self._floor(clock)
        return self._verdict(timed)

    def _noise(self, seconds: float) -> Noise:
        import torch

        on_gpu = self.settings.device == "cuda" and torch.cuda.is_available()
        noise, warnings = noise_for(
            self.settings.device,
            seconds,
            file=self.settings.calibration,
            gpu=torch.cuda.get_device_name() if on_gpu else None,
            alike=is_regression_target(self.ask.at_least),
        )
        self.warnings += warnings
        return noise

    def _keep(self, clock: Clock, timed: Timed) -> None:
        found: dict[str, Any] = {
            "rounds": tuple(timed.kept),
            "discarded": tuple(timed.discarded),
            "telemetry": clock.telemetry(),
            "looks": timed.looks,
            "setups": timed.setups,
            "retries": timed.retries,
            "rotation": clock.rotation,
            "launches": clock.launches,
            "gpu_seconds": clock.seconds_spent,
            "clock_note": clock.note,
        }
        if (one := timed.estimate) is not None:
            confidence = 1.0 - 2.0 * self.settings.alpha_a_case if timed.confidence is None else timed.confidence
            found |= {"speed": one.speed, "speed_low": one.low, "speed_high": one.high, "confidence": confidence}
        if timed.kept:
            found |= {
                "candidate_seconds": statistics.median(one.candidate_seconds for one in timed.kept),
                "rival_seconds": statistics.median(one.rival_seconds for one in timed.kept),
                "cycles_speed": timed.cycles_speed,
            }
        self.found = replace(self.found, **found)
        self.warnings += clock.warnings

    def _host(self, clock: Clock) -> None:
        mine, rivals = clock.host_seconds()
        self.found = replace(
            self.found,
            candidate_host_seconds=mine,
            rival_host_seconds=rivals,
            candidate_waited_seconds=clock.waited_seconds[0],
            rival_waited_seconds=clock.waited_seconds[1],
            timer_seconds=clock.timer_seconds,
        )
        seconds = self.found.candidate_seconds
        if mine is not None and seconds is not None:
            self.found = replace(self.found, bound="host" if mine > seconds else "device")

    def _floor(self, clock: Clock) -> None:
        seconds = self.found.candidate_seconds
        if self.settings.device != "cuda" or clock.kind == "fake" or seconds is None:
            return
        import torch

        floor = floor_of(
            ceilings_of(torch.cuda.current_device()),
            flops=self.ask.problem.flops,
            bytes_moved=self.ask.problem.bytes,
            dtype=str(self.ask.problem.params.get("dtype") or ""),
            cold=self.settings.cache == "cold" and clock.covered,
        )
        others, rival = self.found.telemetry.other_processes, self.found.rival_seconds
        # The clock's own costs, which it takes off, are too long if the card served others meanwhile: of either side.
        least = min(seconds, rival) if others and rival is not None else seconds
        if floor is not None and least < floor.seconds:
            whose = "" if least == seconds else " of the rival"
            said = f"{words.time_text(least)} a call{whose} is less than the card can take: "
            said += f"{floor.why} are {words.time_text(floor.seconds)}"
            if others:
                raise Stop(Verdict.UNDECIDED, Reason.SHARED_DEVICE, f"{_others_text(others)}; {said}")
            raise Stop(Verdict.WRONG, Reason.FASTER_THAN_THE_CARD, said)

    def _verdict(self, timed: Timed) -> Comparison:
        others, allowed = self.found.telemetry.other_processes, self.settings.allow_shared
        if timed.verdict is None or timed.estimate is None or (others and not allowed):
            reason = undecided(timed.discarded, timed.kept, others, allowed, timed.contradicted)
            return self.result(Verdict.UNDECIDED, reason, self._undecided_sentence(reason, timed))
        reason = Reason.FAST_ENOUGH if timed.verdict is Verdict.MET else Reason.TOO_SLOW
        if self.ask.at_least is None:
            reason = Reason.CHECKED
        return self.result(timed.verdict, reason, self._ratio_sentence(timed))

    def _ratio_sentence(self, timed: Timed) -> str:
        found, one, target = self.found, timed.estimate, self.ask.at_least
        assert one is not None
        assert found.candidate_seconds is not None
        assert found.rival_seconds is not None
        asked = "" if target is None else f", at least {target:.3f} asked"
        text = (
            f"{one.speed:.3f} of {found.rival} {words.interval_text(one.low, one.high)}{asked}: "
            f"{words.time_text(found.candidate_seconds)} against {words.time_text(found.rival_seconds)}"
        )
        if timed.confidence is not None:
            text += f"; {len(timed.kept)} rounds only, the interval at {timed.confidence:.0%}"
        if self.settings.device == "cuda":
            text += words.clock_text(found.telemetry, timed.cycles_speed, one.speed)
        if found.clock_note is not None:
            text += f"; {found.clock} clock: {found.clock_note}"
        if found.bound == "host" and found.candidate_host_seconds is not None:
            text += f"; eager calls are bound by the host ({words.time_text(found.candidate_host_seconds)} a call)"
        return text

    def _undecided_sentence(self, reason: Reason, timed: Timed) -> str:
        others, lost = self.found.telemetry.other_processes, timed.discarded
        so_far = f"; so far {self._ratio_sentence(timed)}" if timed.estimate is not None else ""
        spent = words.time_text(max(self.found.gpu_seconds, 1e-9))
        causes = ", ".join(sorted({str(one.discarded) for one in lost}))
        start = {
            Reason.SHARED_DEVICE: _others_text(others),
            Reason.THROTTLED: f"{len(lost)} of {len(lost) + len(timed.kept)} rounds were discarded ({causes})",
            Reason.NO_ROUNDS: "no round was timed",
            Reason.PROCESSES_DISAGREE: "missed here, and not in a fresh process",
            Reason.BUDGET_SPENT: f"not decided in {spent} of {self.settings.seconds:g} s",
        }[reason]
        others_run = busy() if self.settings.device == "cpu" else None
        return start + so_far + (f"; {others_run}" if others_run else "")

    def stopped(self, stop: Stop) -> Comparison:
        """The comparison of a case that ended early."""
        frames = () if stop.error is None else frames_of(stop.error)
        return replace(self.result(stop.verdict, stop.reason, str(stop)), frames=frames, error=stop.error)

    def result(self, verdict: Verdict, reason: Reason, sentence: str) -> Comparison:
        """The comparison, decided."""
        errors = self.checks.errors
        return replace(
            self.found,
            verdict=verdict,
            reason=reason,
            sentence=sentence,
            candidate_error=errors.candidate,
            rival_error=errors.rival,
            error_limit=errors.limit,
            candidate_first_seconds=self.checks.first_seconds,
            rival_differs=tuple(self.checks.rival_differs),
            warnings=tuple(dict.fromkeys([*self.warnings, *self.checks.warnings, *self.checks.watch.told])),
        )


def _others_text(others: int | None) -> str:
    return f"{others} other process{'es' if others != 1 else ''} on the card"
