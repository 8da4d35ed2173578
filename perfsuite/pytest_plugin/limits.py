"""The markers that limit something other than the speed against a rival. Each becomes a case of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from perfsuite.outcome import Reason, Verdict
from perfsuite.pytest_plugin.markers import GROWTH, Alignment, Launches, MemoryTarget, NoSync, RooflineTarget

if TYPE_CHECKING:
    from perfsuite.case.comparison import Comparison
    from perfsuite.problems.base import Problem

PEAK_BYTES, LAUNCHES, SYNCHRONISES = "peak_bytes", "launches", "synchronises"
SECONDS, ATTAINABLE = "seconds", "attainable_flops"
ATTAINABLE_WITH = {"copy": ATTAINABLE, "read": "attainable_flops_reading"}
Measure = Callable[[str, "Problem"], float]
"""Resource and problem -> its value for the candidate under test."""
SideBySide = Callable[["Problem", "Problem"], "tuple[float, float]"]
"""Two problems -> the candidate's device seconds at each, timed in turn."""


class Limit(NamedTuple):
    """What came of one limit."""

    aspect: str
    """What the record calls it: "memory", "growth", "launches", "no_sync", "roofline", "alignment"."""
    met: bool
    reason: Reason
    sentence: str
    measured: dict[str, float]


def check(
    asked: Sequence[Any],
    problem: Problem,
    measure: Measure,
    side_by_side: SideBySide,
    *,
    seconds: float | None = None,
) -> Iterator[Limit]:
    """Check each of a test's limits in turn.

    seconds: device time of a call on cold inputs, where the test has timed it against a rival.
    """
    for limit in asked:
        if isinstance(limit, MemoryTarget):
            yield from _memory(limit, problem, measure)
        elif isinstance(limit, Launches):
            count = measure(LAUNCHES, problem)
            sentence = f"{count:.0f} kernel launches a call, at most {limit.at_most} allowed"
            yield _limit("launches", count <= limit.at_most, Reason.TOO_MANY_LAUNCHES, sentence, {LAUNCHES: count})
        elif isinstance(limit, NoSync):
            waits = measure(SYNCHRONISES, problem)
            sentence = "the call waits for the device" if waits else "the call returns without waiting for the device"
            yield _limit("no_sync", not waits, Reason.SYNCHRONISES, sentence, {SYNCHRONISES: float(waits)})
        elif isinstance(limit, RooflineTarget):
            yield _roofline(limit, problem, measure, seconds)
        elif isinstance(limit, Alignment):
            yield _alignment(limit, problem, side_by_side)


def _memory(limit: MemoryTarget, problem: Problem, measure: Measure) -> Iterator[Limit]:
    peak = measure(PEAK_BYTES, problem)
    if limit.peak_bytes is not None:
        sentence = f"{_mebibytes(peak)} at once, at most {_mebibytes(limit.peak_bytes)} allowed"
        yield _limit("memory", peak <= limit.peak_bytes, Reason.TOO_MUCH_MEMORY, sentence, {PEAK_BYTES: peak})
    if limit.growth is not None:
        from perfsuite.analyze.resources import exponent, grown

        doubled = measure(PEAK_BYTES, grown(problem))
        power = exponent(peak, doubled)
        sentence = (
            f"memory grows with power {power:.2f} of the sequence length ({_mebibytes(peak)}, then "
            f"{_mebibytes(doubled)} at twice the length), {limit.growth} asked: at most {GROWTH[limit.growth]:g}"
        )
        measured = {PEAK_BYTES: peak, "peak_bytes_doubled": doubled, "exponent": power}
        yield _limit("growth", power <= GROWTH[limit.growth], Reason.TOO_MUCH_MEMORY, sentence, measured)


def _roofline(limit: RooflineTarget, problem: Problem, measure: Measure, timed: float | None) -> Limit:
    if problem.flops is None or problem.bytes is None:
        raise ValueError(f"roofline_target needs the FLOPs and bytes of a call, which {problem.name} does not say")
    attainable = measure(ATTAINABLE_WITH[limit.bandwidth], problem)
    seconds = measure(SECONDS, problem) if timed is None else timed
    measured = {}
    if problem.flops / seconds / attainable < limit.at_least:
        # A card's memory is slower by a tenth and more for a moment now and then, its rival's times then too: a miss
        # counts when it is seen twice.
        measured["first_seconds"] = seconds
        seconds = measure(SECONDS, problem)
    share = problem.flops / seconds / attainable
    before = f" ({measured['first_seconds'] * 1e6:.4g} us the first time)" if measured else ""
    sentence = (
        f"{share:.1%} of the attainable {attainable / 1e12:.4g} TFLOPS at {problem.flops / problem.bytes:.4g} FLOPs a "
        f"byte{' read' if limit.bandwidth == 'read' else ''}, at least {limit.at_least:.1%} asked: "
        f"{seconds * 1e6:.4g} us{before}"
    )
    measured |= {SECONDS: seconds, ATTAINABLE: attainable, "share": share}
    return _limit("roofline", share >= limit.at_least, Reason.TOO_SLOW, sentence, measured)


def _alignment(limit: Alignment, problem: Problem, side_by_side: SideBySide) -> Limit:
    from perfsuite.analyze.resources import at_dim

    name, other = at_dim(problem, limit.dim)
    own, there = side_by_side(problem, other)
    drop = there / own * _flops(problem) / _flops(other) - 1.0
    sentence = (
        f"a FLOP takes {drop:+.0%} time at {name} {limit.dim} against {problem.params[name]} ({there * 1e6:.4g} us, "
        f"{own * 1e6:.4g} us), at most {limit.max_drop:+.0%} allowed"
    )
    measured = {SECONDS: own, "misaligned_seconds": there, "drop": drop}
    return _limit("alignment", drop <= limit.max_drop, Reason.TOO_SLOW, sentence, measured)


def _flops(problem: Problem) -> float:
    assert problem.flops is not None  # at_dim knows no problem without
    return problem.flops


def comparison_of(limit: Limit, checked: Comparison) -> Comparison:
    """The limit's outcome in the form of the other cases, beside the comparison of the same candidate."""
    from perfsuite.case.comparison import Comparison

    return Comparison(
        family=checked.family,
        name=checked.name,
        params=checked.params,
        candidate=checked.candidate,
        rival=None,
        verdict=Verdict.MET if limit.met else Verdict.MISSED,
        reason=limit.reason,
        sentence=limit.sentence,
        cache=checked.cache,
        distribution=checked.distribution,
        seed=checked.seed,
    )


def _limit(aspect: str, met: bool, reason: Reason, sentence: str, measured: dict[str, float]) -> Limit:
    return Limit(aspect, met, Reason.CHECKED if met else reason, sentence, measured)


def _mebibytes(count: float) -> str:
    return f"{count:.0f} B" if count < 2**20 else f"{count / 2**20:.4g} MiB"
