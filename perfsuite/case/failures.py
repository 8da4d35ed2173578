"""Turns exceptions of candidate and rival into verdicts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from perfsuite.clock.base import CaptureError, SideFailedError
from perfsuite.outcome import Reason, Verdict


class Stop(Exception):
    """The case is decided before its end."""

    def __init__(self, verdict: Verdict, reason: Reason, sentence: str) -> None:
        super().__init__(sentence)
        self.verdict, self.reason = verdict, reason


@contextmanager
def failures() -> Iterator[None]:
    """Turn exceptions of the sides into a Stop; other exceptions pass."""
    from torch import OutOfMemoryError

    from perfsuite.oracle.yardstick import LibraryWrongError
    from perfsuite.problems.base import RivalUnavailableError

    try:
        yield
    except RivalUnavailableError as error:
        raise Stop(Verdict.UNDECIDED, Reason.NO_RIVAL, str(error)) from error
    except LibraryWrongError as error:
        raise Stop(Verdict.UNDECIDED, Reason.RIVAL_WRONG, str(error)) from error
    except OutOfMemoryError as error:
        raise Stop(Verdict.UNDECIDED, Reason.OUT_OF_MEMORY, f"out of memory: {first_line(error)}") from error
    except (SideFailedError, CaptureError) as error:
        if isinstance(error.cause, OutOfMemoryError):
            sentence = f"the {error.side} ran out of memory: {first_line(error.cause)}"
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
        # Such as SystemExit, or pytest's skip: they would end the run or the test without a failure.
        said = f"a side raised {type(error).__name__}: {first_line(error)}"
        raise Stop(Verdict.WRONG, Reason.CANDIDATE_FAILED, said) from error


def guarded(side: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, with its exceptions wrapped in one that names the side."""

    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            raise SideFailedError(side, error) from error

    return call


def name_of(side: str | Callable[..., Any]) -> str:
    """A rival's name as it was given, or a callable's: "module.function"."""
    if isinstance(side, str):
        return side
    name = getattr(side, "__qualname__", None) or getattr(side, "__name__", None)
    if name is None:
        return type(side).__qualname__
    module = getattr(side, "__module__", None)
    return f"{module}.{name}" if module else str(name)


def first_line(error: BaseException) -> str:
    """The first line of an exception's text."""
    return next(iter(str(error).splitlines()), type(error).__name__)
