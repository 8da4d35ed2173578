"""What the oracle says of one answer."""

from __future__ import annotations

from dataclasses import dataclass

from perfsuite.outcome import Reason


@dataclass(frozen=True)
class Judgement:
    """Right or wrong, why, and the errors that say so.

    Errors are relative to the FP64 reference: `..._error` the Frobenius norm of the difference over that of the
    reference, `..._worst_row` the same of the row where it is largest. None where the answer was not compared, because
    its form was already wrong.
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


def wrong(reason: Reason, sentence: str) -> Judgement:
    """A judgement made before any error could be measured."""
    return Judgement(ok=False, reason=reason, sentence=sentence)
