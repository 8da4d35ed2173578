"""Notices that torch has given up compiling a function, and lets its compiler begin anew.

torch compiles a function for `torch._dynamo.config.recompile_limit` cases at most, which is 8. Further ones run
uncompiled, with a line in the log, or raise if the function must be one graph. A rival that runs uncompiled is unfair,
and so is that verdict on a candidate: both depend on the tests that ran before.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class _Listener(logging.Handler):
    """Keeps the names of the limits that torch's compiler has reached, and of the functions."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.heard: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        given = record.args
        if "hit config." in str(record.msg) and isinstance(given, tuple) and len(given) >= 3:
            self.heard.append(f"{given[0]} = {given[1]}, {given[2]}")


_listener = _Listener()
# By its name: torch need not be there yet.
logging.getLogger("torch._dynamo.convert_frame").addHandler(_listener)


def compiling(work: Callable[[], T], warnings: list[str], *, again: bool = False) -> T:
    """The result of `work`. If torch gives up compiling a function meanwhile, its compiler begins anew, with a warning.

    `work` runs once more then if it has raised, and with `again` in any case.
    """
    try:
        found = work()
    except Exception:
        if not _begun_anew(warnings):
            raise
        return work()
    return work() if _begun_anew(warnings) and again else found


def _begun_anew(warnings: list[str]) -> bool:
    """True if torch has given up compiling a function since the last look."""
    if not _listener.heard:
        return False
    import torch

    heard = _listener.heard[0]
    _listener.heard.clear()
    torch.compiler.reset()
    warnings.append(f"torch had given up compiling a function ({heard}); its compiler has begun anew for this case")
    return True
