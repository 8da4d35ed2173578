"""Turns exceptions of candidate and rival into verdicts."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from perfsuite.clock.base import CaptureError, SideFailedError
from perfsuite.device.idle import seconds_until_idle
from perfsuite.oracle import LibraryWrongError
from perfsuite.outcome import Reason, Verdict
from perfsuite.problems.base import Problem, RivalUnavailableError
from perfsuite.settings import Settings

MOST_FRAMES = 5
"""Frames of a candidate that raised that the record keeps."""
MOST_TEXT = 2000
"""Characters of a message that the record keeps."""
MOST_SHOWN = 6
"""Names that a sentence lists."""

OF_KERNELS = ("assert", "illegal", "misaligned", "launch failure", "program counter", "address space")
"""Words of CUDA's errors that a running kernel causes, each of which ends the context (cudaError_t, driver_types.h)."""


class Stop(Exception):
    """Ends a case early, with its verdict, its reason and a sentence."""

    def __init__(self, verdict: Verdict, reason: Reason, sentence: str, *, error: BaseException | None = None) -> None:
        super().__init__(sentence[:MOST_TEXT])
        self.verdict, self.reason = verdict, reason
        self.error = error
        """The exception of the candidate, if it raised one."""


def replaced(names: list[str]) -> Stop:
    """The end of a case in which these names stand for something else than at its start."""
    said = f"functions or values that the judgement rests on are replaced: {shown(names)}"
    return Stop(Verdict.WRONG, Reason.TAMPERED, said)


def shown(names: list[str]) -> str:
    """The first of these names, in words."""
    some = list(dict.fromkeys(names))
    return ", ".join(some[:MOST_SHOWN]) + (f" and {len(some) - MOST_SHOWN} more" if len(some) > MOST_SHOWN else "")


@contextmanager
def failures() -> Iterator[None]:
    """Turn the exceptions of candidate and rival into a Stop; let others pass."""
    from torch import AcceleratorError, OutOfMemoryError

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
        if isinstance(error.cause, RivalUnavailableError) and error.side == "rival":
            raise Stop(Verdict.UNDECIDED, Reason.NO_RIVAL, str(error.cause)) from error
        if error.side == "rival":
            raise Stop(Verdict.UNDECIDED, Reason.RIVAL_FAILED, str(error)) from error
        said = getattr(error.cause, "reason", None)
        if said is Reason.NOT_STARTED:
            raise Stop(Verdict.UNDECIDED, Reason.NOT_STARTED, _first_line(error.cause)) from error
        reason = said if isinstance(said, Reason) else Reason.CANDIDATE_FAILED
        raise Stop(Verdict.WRONG, reason, _told(error), error=error.cause) from error
    except AcceleratorError as error:
        if not any(words in str(error) for words in OF_KERNELS):  # a card in exclusive mode, no memory for a graph
            raise
        # It comes when the card is waited for, behind calls of both sides. What is judged is trusted less.
        said = f"a kernel failed on the card while both sides were called: {_first_line(error)}"
        raise Stop(Verdict.WRONG, Reason.CANDIDATE_FAILED, said, error=error) from error
    except (Stop, Exception, KeyboardInterrupt):
        raise
    except BaseException as error:
        if _ends_the_test(error):
            raise
        # SystemExit, or pytest's skip, would end the run or the test without a failure.
        said = f"a side raised {type(error).__name__}: {_first_line(error)}"
        raise Stop(Verdict.WRONG, Reason.CANDIDATE_FAILED, said, error=error) from error


def broken_context(device: str) -> str | None:
    """The card's error if nothing can run on it in this process any more; None if all is well.

    An illegal address or a failed assertion in a kernel ends the context of its process. A kernel that does not end
    would slow all that follows.
    """
    import torch

    if device != "cuda" or not torch.cuda.is_initialized():
        return None
    try:
        idle = seconds_until_idle(torch.cuda.current_device())
    except torch.AcceleratorError as error:
        return _first_line(error)
    return None if idle is not None else "work that it left on the card does not end"


def guarded(side: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, with its exceptions wrapped in a SideFailedError that names the side."""

    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            raise SideFailedError(side, error) from error

    return call


def fits(problem: Problem, settings: Settings, function: Callable[..., Any]) -> bool:
    """True if one call of that guarded function, with nothing else in memory, does not run out of it."""
    import torch

    if settings.device == "cuda":
        torch.cuda.empty_cache()
    try:
        with torch.no_grad():
            problem.inputs(settings.generator(), distribution=settings.distribution).call(function)
    except SideFailedError as error:
        return not isinstance(error.cause, torch.OutOfMemoryError)
    except torch.OutOfMemoryError:  # the inputs alone
        return False
    return True


def _ends_the_test(error: BaseException) -> bool:
    """True for the time-out of pytest-timeout: its signal may arrive in a candidate, which is not at fault."""
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_globals.get("__name__") == "pytest_timeout":
            return True
        trace = trace.tb_next
    return False


def frames_of(error: BaseException) -> tuple[str, ...]:
    """The last frames of a candidate's code in an exception's traceback, as "file:line in function".

    Frames of perfsuite and of torch are left out. An exception of another process brings its frames as `frames`.
    """
    import torch

    given = getattr(error, "frames", None)
    if given is not None:
        return tuple(map(str, given))[-MOST_FRAMES:]
    apart = (f"{Path(__file__).parents[1]}{os.sep}", f"{Path(torch.__file__).parent}{os.sep}", "<")
    frames = [one for one in traceback.extract_tb(error.__traceback__) if not one.filename.startswith(apart)]
    return tuple(f"{_relative(one.filename)}:{one.lineno} in {one.name}" for one in frames[-MOST_FRAMES:])


def _relative(file: str) -> str:
    """The path from the working directory, if it leads down; else the path as it is."""
    path = os.path.relpath(file)
    return file if path.startswith("..") else path


def _told(error: SideFailedError | CaptureError) -> str:
    """The sentence of a candidate that raised: the exception, and where."""
    frames = frames_of(error.cause)
    # The sentence of an error that has its own reason is complete.
    return (str(error.cause) if isinstance(getattr(error.cause, "reason", None), Reason) else str(error)) + (
        f" ({frames[-1]})" if frames else ""
    )


def described(error: BaseException) -> str:
    """The kind and the first line of an exception."""
    return f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"


def remedy(error: BaseException) -> str:
    """A sentence on arguments with which both sides raise no more."""
    if "does not require grad" in str(error):
        return "calls run without gradients, so write perf(..., backward=True), or enter torch.enable_grad() in both"
    return "give args= and kwargs= with which the rival runs"


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
