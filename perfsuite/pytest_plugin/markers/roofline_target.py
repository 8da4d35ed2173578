"""The marker `roofline_target`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from perfsuite.outcome import Reason
from perfsuite.pytest_plugin.marker import Finding, Marker, MarkerError, Subject, is_positive

ATTAINABLE = {"copy": "attainable_flops", "read": "attainable_flops_reading"}
"""The bandwidth that sets the roof's slope -> the resource that gives the attainable FLOPs a second."""


@dataclass(frozen=True, kw_only=True)
class RooflineTarget(Marker):
    """A call must reach the share `at_least` of the attainable FLOPs a second; bandwidth: of a "copy" or a "read"."""

    overridable = ("at_least",)
    at_least: float
    bandwidth: str = "copy"

    def __post_init__(self) -> None:
        if not is_positive(self.at_least) or self.at_least > 1.0:
            raise MarkerError(
                f"at_least is {self.at_least!r}; it must be a share over 0 and at most 1 (0.6: 60 % of the roof)"
            )
        if self.bandwidth not in ATTAINABLE:
            raise MarkerError(f"bandwidth is {self.bandwidth!r}; allowed are {' and '.join(map(repr, ATTAINABLE))}")

    def judge(self, subject: Subject) -> Iterator[Finding]:
        """Compare the call's share of the roof; a time that the test has measured already is used again."""
        problem = subject.problem
        if problem.flops is None or problem.bytes is None:
            raise ValueError(f"roofline_target needs the FLOPs and bytes of a call, but {problem.name} has none")
        attainable = subject.measure(ATTAINABLE[self.bandwidth], problem)
        seconds = subject.measure("seconds", problem) if subject.seconds is None else subject.seconds
        measured = {}
        if problem.flops / seconds / attainable < self.at_least:
            # A card's memory is at times a tenth slower for a moment, so a second measurement must confirm a miss.
            measured["first_seconds"] = seconds
            seconds = subject.measure("seconds", problem)
        share = problem.flops / seconds / attainable
        before = f" ({measured['first_seconds'] * 1e6:.4g} us the first time)" if measured else ""
        sentence = (
            f"{share:.1%} of the attainable {attainable / 1e12:.4g} TFLOPS at {problem.flops / problem.bytes:.4g} "
            f"FLOPs a byte{' read' if self.bandwidth == 'read' else ''}, at least {self.at_least:.1%} asked: "
            f"{seconds * 1e6:.4g} us{before}"
        )
        measured |= {"seconds": seconds, "attainable_flops": attainable, "share": share, "asked_share": self.at_least}
        yield Finding("roofline", Reason.TOO_SLOW if share < self.at_least else None, sentence, measured)
