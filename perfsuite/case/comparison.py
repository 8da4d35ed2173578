"""The result of one case: verdict, numbers and everything else that its record keeps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from perfsuite.case.ask import Ask
from perfsuite.clock.rounds import Round
from perfsuite.device.telemetry import Telemetry
from perfsuite.outcome import Reason, Verdict
from perfsuite.problems.base import Scalar
from perfsuite.settings import CacheMode, Settings

ClockKind = Literal["graph", "events", "host", "fake", "none"]
Bound = Literal["device", "host"]


@dataclass(frozen=True)
class Comparison:
    """The result of one case. Times are seconds a call."""

    family: str
    name: str
    params: Mapping[str, Scalar]
    candidate: str
    """The candidate's name: "module.function"."""
    rival: str | None
    """The rival's name; None without a rival."""

    verdict: Verdict
    reason: Reason
    sentence: str
    """One sentence with the numbers."""
    target: float | None = None
    """The lowest speed that meets the target, if there is one."""

    speed: float | None = None
    """Rival seconds over candidate seconds: median over the rounds' ratios; None if nothing was timed."""
    speed_low: float | None = None
    """Lower end of the interval on the median ratio, at `confidence`."""
    speed_high: float | None = None
    confidence: float | None = None
    """Probability that the interval holds, over all looks of the sequential test."""
    candidate_seconds: float | None = None
    """Median over the rounds that count."""
    rival_seconds: float | None = None
    candidate_host_seconds: float | None = None
    """Host time that one call takes to launch, by `perf_counter`; None if it was not measured."""
    rival_host_seconds: float | None = None
    bound: Bound | None = None
    """The longer part of an eager call: its time on the device, or its launch by the host."""
    cycles_speed: float | None = None
    """`speed` in SM cycles instead of seconds; None if the clock is unknown."""

    candidate_error: float | None = None
    rival_error: float | None = None
    error_limit: float | None = None

    clock: ClockKind = "none"
    clock_note: str | None = None
    """Why another clock than the default one was used, and how written arguments are restored; None for neither."""
    cache: CacheMode = "cold"
    distribution: str = "normal"
    seed: int = 0
    rotation: int = 0
    """Number of sets of inputs that take turns."""
    launches: int = 0
    """Calls timed in one replay (one sample)."""
    rounds: tuple[Round, ...] = ()
    """Rounds that count, in the order in which they ran."""
    discarded: tuple[Round, ...] = ()
    """Rounds that do not count, each with its reason."""
    telemetry: Telemetry = field(default_factory=Telemetry)
    looks: int = 0
    """Looks of the sequential test."""
    setups: int = 0
    """Set-ups: buffers and graphs made anew."""
    retries: int = 0
    """Set-ups added because the verdict would have been MISSED."""
    gpu_seconds: float = 0.0
    """Device time of warm-up and timed rounds together (host time on the CPU)."""
    wall_seconds: float = 0.0
    """Host time of the case from beginning to end."""
    check_seconds: float = 0.0
    """The part of `wall_seconds` spent on checks of answers and of tampering."""
    warnings: tuple[str, ...] = ()
    frames: tuple[str, ...] = ()
    """Of a candidate that raised: the last frames of its code, the innermost last, as "file:line in function"."""
    error: BaseException | None = field(default=None, compare=False, repr=False)
    """The exception of a candidate that raised, for a debugger; no part of the record."""

    @property
    def ok(self) -> bool:
        """True if the case is MET."""
        return self.verdict is Verdict.MET

    def as_dict(self) -> dict[str, Any]:
        """Every field as plain values, rounds included."""
        values = asdict(replace(self, error=None))
        del values["error"]
        values["verdict"], values["reason"] = self.verdict.value, self.reason.value
        return values


def unmeasured(ask: Ask, verdict: Verdict, reason: Reason, sentence: str) -> Comparison:
    """The comparison of a case before anything is measured."""
    # Other values are another case: errors differ, and so do times if power is the limit.
    values = "" if ask.settings.distribution == Settings.distribution else f" {ask.settings.distribution}"
    return Comparison(
        family=ask.problem.family,
        name=f"{ask.problem.name}{values}",
        params=dict(ask.problem.params),
        candidate=ask.candidate_name,
        rival=ask.rival_name,
        verdict=verdict,
        reason=reason,
        sentence=sentence,
        target=ask.at_least,
        cache=ask.settings.cache,
        distribution=ask.settings.distribution,
        seed=ask.settings.seed,
    )
