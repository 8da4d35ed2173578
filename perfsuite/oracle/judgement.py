"""The result of judging one answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from perfsuite.outcome import Reason


@dataclass(frozen=True)
class Judgement:
    """Right or wrong, the reason, and the errors behind it.

    Errors are relative to the FP64 reference: `..._error` is the Frobenius norm of the difference over that of the
    reference, `..._worst_row` the same of the worst row. They are None if the form was already wrong.
    """

    ok: bool
    reason: Reason | None
    """None where `ok`."""
    sentence: str
    candidate_error: float | None = None
    rival_error: float | None = None
    limit: float | None = None
    """The largest candidate_error allowed: twice the library's, and one unit in the last place."""
    candidate_worst_row: float | None = None
    rival_worst_row: float | None = None
    random: bool = False
    """True if the rival draws random numbers: two of its results differ."""

    left_out: tuple[str, ...] = ()
    """Hard inputs that were not tried, because there was no time."""
    hard: Mapping[str, bool | None] = field(default_factory=dict)
    """Hard inputs that were tried, and whether the rival's answer on them is right; None if that was not asked."""
    note: str | None = None
    """A sentence why other sizes say nothing about the candidate."""

    @property
    def share(self) -> float:
        """The error as a share of the limit; 0 without a limit."""
        return (self.candidate_error or 0.0) / self.limit if self.limit else 0.0


def wrong(reason: Reason, sentence: str) -> Judgement:
    """A judgement made before any error could be measured."""
    return Judgement(ok=False, reason=reason, sentence=sentence)
