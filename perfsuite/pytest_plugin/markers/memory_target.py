"""The marker `memory_target`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from perfsuite.outcome import Reason
from perfsuite.pytest_plugin.marker import Finding, Marker, MarkerError, Subject, is_one_of, is_positive, is_zero

GROWTH = {"linear": 1.1, "quadratic": 2.1}
"""Largest power of the sequence length by kind of growth; the tenth allows for the allocator's rounding."""


@dataclass(frozen=True, kw_only=True)
class MemoryTarget(Marker):
    """A call may hold at most that many bytes at once, growing "linear" or "quadratic" in the sequence length.

    leaked_bytes: eight calls may leave at most that many bytes behind, as a rule 0.
    """

    overridable = ("peak_bytes",)
    peak_bytes: float | None = None
    growth: str | None = None
    leaked_bytes: float | None = None

    def __post_init__(self) -> None:
        if self.peak_bytes is None and self.growth is None and self.leaked_bytes is None:
            raise MarkerError("needs peak_bytes, growth, leaked_bytes or several of these")
        if not (self.leaked_bytes is None or is_positive(self.leaked_bytes) or is_zero(self.leaked_bytes)):
            raise MarkerError(f"leaked_bytes is {self.leaked_bytes!r}; it must be a number of bytes, 0 or more")
        if self.peak_bytes is not None and not is_positive(self.peak_bytes):
            raise MarkerError(f"peak_bytes is {self.peak_bytes!r}; it must be a number of bytes over 0")
        if self.growth is not None and not is_one_of(self.growth, GROWTH):
            raise MarkerError(f"growth is {self.growth!r}; allowed are {' and '.join(map(repr, GROWTH))}")

    def judge(self, subject: Subject) -> Iterator[Finding]:
        """The peak of one call, its growth from one sequence length to twice that length, and the bytes left behind."""
        if self.leaked_bytes is not None:
            leaked = subject.measure("leaked_bytes", subject.problem)
            broken = Reason.TOO_MUCH_MEMORY if leaked > self.leaked_bytes else None
            sentence = f"eight calls leave {_mebibytes(leaked)} behind, at most {_mebibytes(self.leaked_bytes)} allowed"
            yield Finding("leak", broken, sentence, {"leaked_bytes": leaked})
        if self.peak_bytes is None and self.growth is None:
            return
        peak = subject.measure("peak_bytes", subject.problem)
        if self.peak_bytes is not None:
            broken = Reason.TOO_MUCH_MEMORY if peak > self.peak_bytes else None
            sentence = f"{_mebibytes(peak)} at once, at most {_mebibytes(self.peak_bytes)} allowed"
            yield Finding("memory", broken, sentence, {"peak_bytes": peak})
        if self.growth is not None:
            from perfsuite.analyze.resources import exponent

            doubled = subject.measure("peak_bytes", subject.problem.grown(2))
            power, most = exponent(peak, doubled), GROWTH[self.growth]
            sentence = (
                f"memory grows with power {power:.2f} of the sequence length ({_mebibytes(peak)}, then "
                f"{_mebibytes(doubled)} at twice the length), {self.growth} asked: at most {most:g}"
            )
            measured = {"peak_bytes": peak, "peak_bytes_doubled": doubled, "exponent": power}
            yield Finding("growth", Reason.TOO_MUCH_MEMORY if power > most else None, sentence, measured)


def _mebibytes(count: float) -> str:
    return f"{count:.0f} B" if count < 2**20 else f"{count / 2**20:.4g} MiB"
