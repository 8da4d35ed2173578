"""Turns exceptions of candidate and rival into verdicts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from perfsuite.clock.base import CaptureError, SideFailedError
from perfsuite.oracle import LibraryWrongError
from perfsuite.outcome import Reason, Verdict
from perfsuite.problems.base import RivalUnavailableError


class Stop(Exception):
    """Ends a case early, with its verdict, its reason and a sentence."""

    def __init__(self, verdict: Verdict, reason: Reason, sentence: str) -> None:
        super().__init__(sentence)
        self.verdict, self.reason = verdict, reason


@contextmanager
def failures() -> Iterator[None]:
    """Turn the exceptions of candidate and rival into a Stop; let others pass."""
    from torch import OutOfMemoryError

    try:
        yield
    except RivalUnavailableError as error:
        raise Stop(Verdict.UNDECIDED, Reason.NO_RIVAL, str(error)) from error
    except LibraryWrongError as error:
        raise Stop(Verdict.UNDECIDED, Reason.RIVAL_WRONG, str(error)) from error
    except OutOfMemoryError as error:
        raise Stop(Verdict.UNDECIDED, Reason.OUT_OF_MEMORY, f"out of memory: {_first_line(error)}") from error
    except (SideFailedError, CaptureError) as error:
        if isinstance(error.cause, OutOfMemoryError):
            sentence = f"the {error.side} ran out of memory: {_first_line(error.cause)}"
            raise Stop(Verdict.UNDECIDED, Reason.OUT_OF_MEMORY, sentence) from error
        if isinstance(error.cause, RivalUnavailableError):
            raise Stop(Verdict.UNDECIDED, Reason.NO_RIVAL, str(error.cause)) from error
        if error.side == "rival":
            raise Stop(Verdict.UNDECIDED, Reason.RIVAL_FAILED, str(error)) from error
        said = getattr(error.cause, "reason", None)
        reason = said if isinstance(said, Reason) else Reason.CANDIDATE_FAILED
        raise Stop(Verdict.WRONG, reason, str(error)) from error
    except (Stop, Exception, KeyboardInterrupt):
        raise
    except BaseException as error:
        # SystemExit, or pytest's skip, would end the run or the test without a failure.
        said = f"a side raised {type(error).__name__}: {_first_line(error)}"
        raise Stop(Verdict.WRONG, Reason.CANDIDATE_FAILED, said) from error


def guarded(side: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, with its exceptions wrapped in a SideFailedError that names the side."""

    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            raise SideFailedError(side, error) from error

    return call


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
