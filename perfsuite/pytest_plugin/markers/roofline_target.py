"""The marker `roofline_target`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from perfsuite.outcome import Reason
from perfsuite.pytest_plugin.marker import Finding, Marker, MarkerError, Subject, is_one_of, is_positive

ATTAINABLE = {
    "copy": "attainable_flops",
    "read": "attainable_flops_reading",
    "own_size": "attainable_flops_of_own_size",
}
"""The bandwidth that sets the roof's slope -> the resource that gives the attainable FLOPs (or bytes) a second."""


@dataclass(frozen=True, kw_only=True)
class RooflineTarget(Marker):
    """A call must reach the share `at_least` of the attainable rate; bandwidth: of a large "copy" or "read", or of the
    fastest read of the call's "own_size".
    """

    overridable = ("at_least",)
    at_least: float
    bandwidth: str = "copy"

    def __post_init__(self) -> None:
        if not is_positive(self.at_least) or self.at_least > 1.0:
            raise MarkerError(
                f"at_least is {self.at_least!r}; it must be a share over 0 and at most 1 (0.6: 60 % of the roof)"
            )
        if not is_one_of(self.bandwidth, ATTAINABLE):
            raise MarkerError(f"bandwidth is {self.bandwidth!r}; allowed are {', '.join(map(repr, ATTAINABLE))}")

    def judge(self, subject: Subject) -> Iterator[Finding]:
        """Compare the call's share of the roof; a time that the test has measured already is used again.

        Without FLOPs the roof is the bandwidth, and without bytes the rate of a large product.
        """
        problem = subject.problem
        work = problem.bytes if problem.flops is None else problem.flops
        if work is None:
            raise ValueError(f"roofline_target needs FLOPs or bytes of a call, but {problem.name} has neither")
        attainable = subject.measure(ATTAINABLE[self.bandwidth], problem)
        seconds = subject.measure("seconds", problem) if subject.seconds is None else subject.seconds
        measured = {}
        if work / seconds / attainable < self.at_least:
            # A card's memory is at times a tenth slower for a moment, so a second measurement must confirm a miss.
            measured["first_seconds"] = seconds
            seconds = subject.measure("seconds", problem)
        share = work / seconds / attainable
        before = f" ({measured['first_seconds'] * 1e6:.4g} us the first time)" if measured else ""
        ceiling = "" if problem.bytes is None else f" ({self._ceiling(problem.bytes)})"
        if problem.flops is None:
            roof = f"{attainable / 1e12:.4g} TB/s{ceiling}"
        elif problem.bytes is None:
            roof = f"{attainable / 1e12:.4g} TFLOPS of a product"
        else:
            roof = f"{attainable / 1e12:.4g} TFLOPS at {problem.flops / problem.bytes:.4g} FLOPs a byte{ceiling}"
        sentence = (
            f"{share:.1%} of the attainable {roof}, at least {self.at_least:.1%} asked: {seconds * 1e6:.4g} us{before}"
        )
        rate = "attainable_bytes" if problem.flops is None else "attainable_flops"
        measured |= {"seconds": seconds, rate: attainable, "share": share, "asked_share": self.at_least}
        yield Finding("roofline", Reason.TOO_SLOW if share < self.at_least else None, sentence, measured)

    def _ceiling(self, bytes_: float) -> str:
        """The name of the bandwidth's ceiling."""
        return f"fastest read of {bytes_ / 1e6:.4g} MB" if self.bandwidth == "own_size" else f"large {self.bandwidth}"
