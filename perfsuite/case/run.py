"""One case, room by room: inputs, oracle, clock, verdict. The order is here; how each works is in its room."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from perfsuite.case.ask import Ask, Remeasure
from perfsuite.case.checks import CaseChecks
from perfsuite.case.comparison import Comparison
from perfsuite.case.failures import Stop, failures, name_of
from perfsuite.clock.base import Clock, Sides
from perfsuite.clock.choose import open_clock
from perfsuite.guards.surroundings import Surroundings, handicaps
from perfsuite.outcome import Reason, Verdict
from perfsuite.problems.base import Problem
from perfsuite.settings import Settings
from perfsuite.verdict import sentence as words
from perfsuite.verdict.floor import ceilings_of, floor_of
from perfsuite.verdict.noise import Noise, noise_for
from perfsuite.verdict.policy import regression_target, undecided
from perfsuite.verdict.timing import Timed, Timing

OpenClock = Callable[[Sides, Settings], Clock]


def compare(
    problem: Problem,
    candidate: Callable[..., Any],
    *,
    against: str | Callable[..., Any] | None = None,
    correctness: bool | str = True,
    at_least: float | None = None,
    settings: Settings,
) -> Comparison:
    """Check and, where asked, time `candidate` on `problem`.

    The case is timed when `against` or `at_least` is given; `Ask` describes all arguments. Exceptions of candidate and
    rival become verdicts. Raises ValueError for an unknown rival or an `at_least` that is not a positive number, and
    ReferenceUnavailableError where a custom problem cannot be checked.
    """
    return run_case(
        Ask(problem, candidate, against=against, correctness=correctness, at_least=at_least, settings=settings)
    )


def run_case(ask: Ask, *, open_clock: OpenClock = open_clock) -> Comparison:
    """Check and time one case; `open_clock` makes the clock over both sides."""
    start = time.perf_counter()
    case = _Case(ask.problem, ask.candidate, ask.against, ask.settings)
    case.target = ask.at_least
    compared = _through(case, ask, open_clock)
    return replace(compared, wall_seconds=time.perf_counter() - start, check_seconds=case.checking)


def _through(case: _Case, ask: Ask, open_clock: OpenClock) -> Comparison:
    correctness, timed = ask.correctness, ask.timed
    surroundings = Surroundings.now()
    case.warnings += [f"the rival is not at its best: {handicap}" for handicap in handicaps()]
    try:
        case.untouched(surroundings)
        case.examined = timed and correctness is True and case.examined_before()
        if correctness is not False and not case.examined:
            case.check(correctness if isinstance(correctness, str) else None)
        case.untouched(surroundings)
        if not timed:
            return case.result(Verdict.MET, Reason.CHECKED, case.checked_sentence(correctness is not False))
        compared = case.time(open_clock, ask.remeasure)
        case.untouched(surroundings)
        return compared
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


class _Case(CaseChecks):
    """Its timing and its verdict."""

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
        with self.a_check():
            self.check_timed(clock)
        if "candidate_error" not in self.facts and self.examined:  # nothing that was timed could be judged
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
        # Other values are another case: errors differ, and so do times where power is the limit.
        values = "" if self.settings.distribution == Settings.distribution else f" {self.settings.distribution}"
        return Comparison(
            family=self.problem.family,
            name=f"{self.problem.name}{values}",
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
