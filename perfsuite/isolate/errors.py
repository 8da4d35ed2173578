"""Failures of a candidate in its process."""

from __future__ import annotations

import signal

from perfsuite.outcome import Reason


class CandidateError(RuntimeError):
    """The candidate raised, or its process ended or hung; the message describes it."""

    frames: tuple[str, ...] = ()
    """The last frames of the candidate's code, as "file:line in function"."""


class LateError(CandidateError):
    """The candidate did not return within its time limit, and its process was ended."""


class FormError(CandidateError):
    """The source gives no candidate, or the candidate returned other than plain tensors in fresh memory."""

    def __init__(self, reason: Reason, sentence: str) -> None:
        super().__init__(sentence)
        self.reason = reason


class NotStartedError(RuntimeError):
    """A process without a line of a candidate's code failed: the machine is at fault."""

    reason = Reason.NOT_STARTED


def signal_name(number: int) -> str:
    """The name of a signal."""
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"
