"""The marker `launches`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from perfsuite.outcome import Reason
from perfsuite.pytest_plugin.marker import Finding, Marker, MarkerError, Subject, is_count


@dataclass(frozen=True, kw_only=True)
class Launches(Marker):
    """A call of the candidate may launch up to `at_most` kernels."""

    overridable = ("at_most",)
    at_most: int

    def __post_init__(self) -> None:
        if not is_count(self.at_most):
            raise MarkerError(f"at_most is {self.at_most!r}; it must be a whole number of kernels, at least 1")

    def judge(self, subject: Subject) -> Iterator[Finding]:
        """Count the kernels of one call."""
        count = subject.measure("launches", subject.problem)
        sentence = f"{count:.0f} kernel launches a call, at most {self.at_most} allowed"
        broken = Reason.TOO_MANY_LAUNCHES if count > self.at_most else None
        yield Finding("launches", broken, sentence, {"launches": count})
