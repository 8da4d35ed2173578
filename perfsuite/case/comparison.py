"""The result of one case: verdict, numbers and everything else that its record keeps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
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
    """The problem's family; "custom" for a call with `args`."""
    name: str
    """The problem's name: sizes, dtype and options."""
    params: Mapping[str, Scalar]
    """The problem's parameters, as plain values."""
    candidate: str
    """The candidate's name: "module.function"."""
    rival: str | None
    """The rival's name; None without a rival."""

    verdict: Verdict
    """MET, MISSED, WRONG or UNDECIDED."""
    reason: Reason
    """The reason of the verdict, as a code."""
    sentence: str
    """One sentence with the numbers."""
    target: float | None = None
    """The lowest speed that meets the target, if there is one."""

    speed: float | None = None
    """Rival seconds over candidate seconds: median over the rounds' ratios; None if nothing was timed."""
    speed_low: float | None = None
    """Lower end of the interval on the median ratio, at `confidence`."""
    speed_high: float | None = None
    """Upper end of the interval."""
    confidence: float | None = None
    """Probability that the interval holds, over all looks of the sequential test."""
    candidate_seconds: float | None = None
    """Median over the rounds that count."""
    rival_seconds: float | None = None
    """The same for the rival."""
    candidate_host_seconds: float | None = None
    """Host time that one call takes to launch, by `perf_counter`; None if it was not measured."""
    rival_host_seconds: float | None = None
    """The same for the rival."""
    candidate_first_seconds: float | None = None
    """Host time of the candidate's first call in this case, which may compile or plan; None if that was not seen."""
    candidate_waited_seconds: float | None = None
    """Host time of an eager call and the wait for its end."""
    rival_waited_seconds: float | None = None
    """The same for the rival."""
    timer_seconds: float | None = None
    """The timer's own part of a sample, which is taken off its time; None if it is not known."""
    bound: Bound | None = None
    """The longer part of an eager call: its time on the device, or its launch by the host."""
    cycles_speed: float | None = None
    """`speed` in SM cycles instead of seconds; None if the clock is unknown."""

    candidate_error: float | None = None
    """The candidate's relative error against float64."""
    rival_error: float | None = None
    """The rival's relative error on the same inputs."""
    error_limit: float | None = None
    """The largest error allowed, from the rival's error and the rounding of the dtype."""

    clock: ClockKind = "none"
    """The method of timing: CUDA graphs, CUDA events, or the host's clock."""
    clock_note: str | None = None
    """Why another clock than the default one was used, and how written arguments are restored; None for neither."""
    cache: CacheMode = "cold"
    """State of the cache at each call: "cold" or "hot"."""
    distribution: str = "normal"
    """The distribution of the inputs."""
    seed: int = 0
    """The seed of inputs and of the order of the rounds."""
    rotation: int = 0
    """Number of sets of inputs that take turns."""
    launches: int = 0
    """Calls timed in one replay (one sample)."""
    rounds: tuple[Round, ...] = ()
    """Rounds that count, in the order in which they ran."""
    discarded: tuple[Round, ...] = ()
    """Rounds that do not count, each with its reason."""
    telemetry: Telemetry = field(default_factory=Telemetry)
    """Clocks, power and temperature while the case ran, and what disturbed it."""
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
    """Sentences about things that a reader should know, such as a rival that is not at its best."""
    rival_differs: tuple[str, ...] = ()
    """Of a timed case: strides of the rival's results, and settings such as TF32, that are not the candidate's."""
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
        values = {**vars(self), "params": dict(self.params), "telemetry": asdict(self.telemetry)}
        del values["error"]
        values["rounds"], values["discarded"] = (
            [dict(vars(one)) for one in each] for each in (self.rounds, self.discarded)
        )
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
